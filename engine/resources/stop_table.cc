#include "engine/resources/stop_table.h"

#include "tensor/copy.h"
#include "tensor/stream.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace rigel {

using kernels::StopRow;

StopTable::StopTable(ResourceKey key, Device& device, std::int32_t num_rows,
                     std::span<const std::int32_t> eos_ids, ResourceKey sampler)
    : Resource(key),
      sampler_(sampler),
      end_ids_(eos_ids.begin(), eos_ids.end()),
      eos_ids_(device, Dtype::kI32, {static_cast<std::int64_t>(eos_ids.size())}),
      table_(device, Dtype::kI32, {num_rows, kernels::kStopRowWords}),
      owners_(static_cast<std::size_t>(num_rows)) {
  std::ranges::sort(end_ids_);
  new_rows_.reserve(owners_.size());
  const Stream stream(device);
  copy(stream, eos_ids_.view(Dtype::kI32, {static_cast<std::int64_t>(end_ids_.size())}),
       const_host_view(std::span<const std::int32_t>(end_ids_)));
  stream.synchronize();
}

void StopTable::ingest_request(const RequestInfo& info) {
  RequestHandle& owner = owners_.at(static_cast<std::size_t>(info.handle.row));
  if (owner != info.handle) {
    owner = info.handle;
    new_rows_.push_back({info.handle, row_of(info)});
  }
}

void StopTable::remove_request(RequestHandle handle, Epoch /*last_touch*/) {
  owners_.at(static_cast<std::size_t>(handle.row)) = {};
  std::erase_if(new_rows_, [handle](const NewRow& row) { return row.handle == handle; });
}

StopRow StopTable::row_of(const RequestInfo& info) const {
  std::vector<std::int32_t> ids = info.sampling.stop_token_ids;
  std::ranges::sort(ids);
  const bool ends_at_eos = std::ranges::includes(ids, end_ids_);
  if (ends_at_eos) {
    std::vector<std::int32_t> own;
    std::ranges::set_difference(ids, end_ids_, std::back_inserter(own));
    ids = std::move(own);
  }
  StopRow row{.generation = info.handle.generation,
              .options = ends_at_eos ? 0 : kernels::kIgnoreEos,
              .min_tokens = info.sampling.min_tokens,
              .max_tokens = info.max_tokens,
              .max_length = info.max_length,
              .num_prompt_tokens = info.num_prompt_tokens,
              .num_generated = info.num_generated,
              .stop_ids = {}};
  kernels::set_stop_ids(row, ids);
  return row;
}

bool StopTable::fits_capture(const SubmoduleStep& /*step*/, const StepContext& context) const {
  return std::ranges::none_of(new_rows_, [&](const NewRow& row) {
    return std::ranges::find(context.batch.handles, row.handle) != context.batch.handles.end();
  });
}

/// A step that fails before its commit leaves the rows new: the next one brings them again.
void StopTable::plan(const SubmoduleStep& /*step*/, StepContext& context) {
  StopPlan plan;
  if (!new_rows_.empty() && context.batch.slot_lease == nullptr) {
    const auto count = static_cast<std::int64_t>(new_rows_.size());
    const auto rows = context.staging->column<std::int32_t>(count);
    const auto values = context.staging->column<std::int32_t>(count * kernels::kStopRowWords);
    std::int32_t* value = values.host.data();
    for (std::size_t index = 0; index < new_rows_.size(); ++index) {
      rows.host[index] = new_rows_[index].handle.row;
      std::memcpy(value, &new_rows_[index].value, sizeof(StopRow));
      value += kernels::kStopRowWords;
    }
    plan.rows = rows.device;
    plan.values = values.device.reshape({count, std::int64_t{kernels::kStopRowWords}});
  }
  context.set_plan(key(), plan);
}

void StopTable::commit(const SubmoduleStep& /*step*/, const StepContext& context) {
  if (context.batch.slot_lease == nullptr) {
    new_rows_.clear();
  }
}

void StopTable::enqueue_new_rows(const StepContext& context) const {
  const auto& plan = context.plan<StopPlan>(key());
  if (plan.rows.defined()) {
    kernels::set_stop_rows(context.stream(), table(), plan.rows, plan.values);
  }
}

kernels::StopTest StopTable::test(const StepContext& context, const ConstDeviceView& tokens) const {
  const auto num_ids = static_cast<std::int64_t>(end_ids_.size());
  return {.stop_rows = table(),
          .eos_ids = eos_ids_.view(Dtype::kI32, {num_ids}),
          .rows = context.plan<SamplerPlan>(sampler_).rows,
          .tokens = tokens};
}

DeviceView StopTable::table() const {
  return table_.view(Dtype::kI32,
                     {static_cast<std::int64_t>(owners_.size()), kernels::kStopRowWords});
}

}  // namespace rigel
