#pragma once

// What the handles of tensor/ point to on CUDA. For this folder's own sources, tensor/launch.h and the libraries that need a
// native stream.

#include "tensor/cuda_error.h"
#include "tensor/device.h"
#include "tensor/stream.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rigel::detail {

struct DeviceState {
  int index;
  int num_multiprocessors;
};

struct StreamState {
  Device* device;
  cudaStream_t stream;
};

struct EventState {
  cudaEvent_t event;
};

struct GraphState {
  cudaGraph_t graph;
  cudaGraph_t loop;  // the body of its loop, a part of it; null: it has none
};

struct GraphExecState {
  cudaGraphExec_t exec;
  std::vector<std::string> node_names;
  std::int64_t num_bytes;
};

struct MemoryInfo {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
};
/// Of the current device.
[[nodiscard]] MemoryInfo memory_info();

}  // namespace rigel::detail
