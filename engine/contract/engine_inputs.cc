#include "engine/contract/engine_inputs.h"

#include "tensor/error.h"

namespace rigel {

const RequestInfo& ModelInputsFromEngine::single_request_info() const {
  const RequestInfo* single = nullptr;
  int num_requests = 0;
  for (std::size_t lane = 0; lane < handles.size(); ++lane) {
    if (!handles[lane].is_padding()) {
      single = infos[lane];
      ++num_requests;
    }
  }
  RIGEL_CHECK(num_requests == 1, "the forward takes one request, the step has {}", num_requests);
  return *single;
}

const RequestInfo& ModelInputsFromEngine::first_request_info() const {
  RIGEL_CHECK(!infos.empty(), "the step has no first request, it has {} lanes", infos.size());
  return *infos.front();
}

}  // namespace rigel
