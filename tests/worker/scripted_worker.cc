#include "tests/worker/scripted_worker.h"

#include "tensor/host_function.h"

#include <algorithm>

namespace rigel::testing {

using Names = LanguageModelNames;

void Script::note(std::string event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  changed_.notify_all();
}

std::vector<std::string> Script::events() const {
  const std::lock_guard lock(mutex_);
  return events_;
}

void Script::wait_for(const std::string& prefix, std::size_t count) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return static_cast<std::size_t>(std::ranges::count_if(events_, [&](const std::string& event) {
             return event.starts_with(prefix);
           })) >= count;
  });
}

void Script::hold_device_after(std::uint64_t step) {
  const std::lock_guard lock(mutex_);
  last_allowed_ = step;
  changed_.notify_all();
}

void Script::enter_device(std::uint64_t step) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return step <= last_allowed_; });
}

ScriptedModel::ScriptedModel(Device& device, Script& script, std::int32_t num_rows)
    : script_(script) {
  decode_row_.walk = Names::kDecode;
  decode_row_.input_seq_len = 1;
  for (Slot& slot : slots_) {
    slot.script = &script;
    slot.tokens = PinnedBuffer(device, Dtype::kI32, {num_rows});
  }
}

void ScriptedModel::bind_node_resources(const NodeResources& resources) {
  kv_key_ = resources.get<KvCache>("kv").key();
}

std::vector<std::uint64_t> ScriptedModel::seeds_of(std::span<const RequestInfo* const> infos) {
  std::vector<std::uint64_t> seeds;
  for (const RequestInfo* info : infos) {
    seeds.push_back(info->seed);
  }
  return seeds;
}

std::unique_ptr<NodeInputs> ScriptedModel::prepare_inputs(const PrepareContext& context,
                                                          const RequestView& request) {
  script_.on_hook("prepare", {request.info().seed});
  auto row = std::make_unique<ArNodeInputs>();
  row->walk = Names::kPrefill;
  row->input_ids = context.signals->find(Names::kTextInputs)->front();
  row->input_seq_len = row->input_ids.dim(0);
  return row;
}

const NodeInputs* ScriptedModel::uniform_row_inputs(WalkId walk) const {
  return walk == Names::kDecode ? &decode_row_ : nullptr;
}

bool ScriptedModel::declare_step(const BatchColumns& batch, SubmoduleStep& step) const {
  script_.on_hook("declare", seeds_of(batch.infos));
  step.declare<KvStep>(kv_key_);
  for (std::size_t lane = 0; lane < batch.handles.size(); ++lane) {
    step.segments.push_back({batch.handles[lane], LabelId::kMain,
                             static_cast<std::int32_t>(batch.inputs[lane]->input_seq_len)});
  }
  return true;
}

void ScriptedModel::preprocess(const BatchColumns& batch, StepContext& /*context*/) {
  script_.on_hook("preprocess", seeds_of(batch.infos));
}

void ScriptedModel::forward(const ModelInputsFromEngine& inputs, BatchedModelOutput& outputs) {
  std::string event = "launch";
  for (const std::uint64_t seed : seeds_of(inputs.infos)) {
    event += " " + std::to_string(seed);
  }
  script_.note(event);
  script_.on_hook("forward", seeds_of(inputs.infos));
  Slot& slot = slots_[++num_steps_ % slots_.size()];
  slot.step = num_steps_;
  slot.sampled.clear();
  for (std::size_t lane = 0; lane < inputs.handles.size(); ++lane) {
    if (inputs.inputs[lane]->is_final_chunk() && inputs.infos[lane]->max_tokens > 0) {
      outputs.push_row_handle(inputs.handles[lane]);
      slot.sampled.push_back(script_.token(
          inputs.infos[lane]->seed, inputs.metadata[lane].loop_counters.count(Names::kDecodeLoop)));
    }
  }
  const StreamRef stream = inputs.context->stream();
  enqueue_host_function(stream, "scripted", run, &slot);
  if (!slot.sampled.empty()) {
    outputs.add_rows(
        Names::kNewToken,
        slot.tokens.device_view(Dtype::kI32, {static_cast<std::int64_t>(slot.sampled.size())}));
  }
}

void ScriptedModel::run(void* data) {
  auto& slot = *static_cast<Slot*>(data);
  slot.script->enter_device(slot.step);
  std::ranges::copy(slot.sampled, reinterpret_cast<std::int32_t*>(slot.tokens.raw()));
}

std::vector<LoopId> ScriptedModel::check_stop(const RequestView& request,
                                              const HostRows& rows) const {
  script_.on_hook("check_stop", {request.info().seed});
  const std::int64_t row = rows.row_of(request.info().handle);
  const std::int32_t token =
      rows.find(Names::kNewToken).span<const std::int32_t>()[static_cast<std::size_t>(row)];
  const RequestInfo& info = request.info();
  const std::int32_t count = request.loop_count(Names::kDecodeLoop) + 1;
  const bool stops = std::ranges::count(info.sampling.stop_token_ids, token) > 0 ||
                     count >= info.max_tokens || info.num_prompt_tokens + count >= info.max_length;
  return stops ? std::vector{Names::kDecodeLoop} : std::vector<LoopId>{};
}

bool ScriptedModel::check_stop_batched(std::span<const RequestView> requests, const HostRows& rows,
                                       std::vector<LoopStop>& stops) const {
  script_.note("stop check");
  if (!script_.batches_stop_check) {
    return false;
  }
  std::vector<std::uint64_t> seeds;
  for (const RequestView& request : requests) {
    seeds.push_back(request.info().seed);
  }
  script_.on_hook("check_stop_batched", seeds);
  for (const RequestView& request : requests) {
    for (const LoopId loop : check_stop(request, rows)) {
      stops.push_back({request.info().handle, loop});
    }
  }
  return true;
}

namespace {

class ScriptedCollector final : public OutputListener {
 public:
  explicit ScriptedCollector(const std::function<void()>& on_output) : on_output_(on_output) {}
  void on_delta(const OutputDelta& delta) override {
    for (const GeneratedToken& token : delta.tokens) {
      answer_.ids.push_back(token.id);
    }
    if (!delta.finish) {
      return on_output_();
    }
    answer_.finish = *delta.finish;
    answer_.error = delta.error;
    ended_.set_value(std::move(answer_));
  }
  std::future<Answer> future() { return ended_.get_future(); }

 private:
  const std::function<void()>& on_output_;
  Answer answer_;
  std::promise<Answer> ended_;
};

}  // namespace

void ScriptedWorkerTest::SetUp() {
  if (!Device::available() || Device::open({})->is_cuda()) {
    GTEST_SKIP() << "its model runs on the virtual device";
  }
}

void ScriptedWorkerTest::TearDown() {
  script.release_device();
  if (worker != nullptr) {
    worker->stop();
  }
  dispatcher.reset();
  worker.reset();
}

void ScriptedWorkerTest::start(const ScriptedWorkerOptions& options) {
  DeviceOptions device_options;
  device_options.mode = options.mode;
  device = Device::open(device_options);
  NodeResources resources;
  resources.add("kv", std::make_unique<KvCache>(resources.next_key(), *device,
                                                KvCacheConfig{.num_layers = 1,
                                                              .num_kv_heads = 1,
                                                              .head_dim = 8,
                                                              .num_pages = options.num_pages,
                                                              .num_rows = options.num_rows,
                                                              .max_length = options.max_length}));
  kv_cache = &resources.get<KvCache>("kv");
  auto engine = std::make_unique<Engine>(
      *device, std::make_unique<ScriptedModel>(*device, script, options.num_rows),
      std::move(resources), EngineConfig{.staging_bytes = 64 * 1024});
  dispatcher = std::make_unique<Dispatcher>(options.tokenizer,
                                            [this](RequestId id, std::int32_t num_tokens) {
                                              worker->end_at_stop_string(id, num_tokens);
                                              after_stop_string();
                                            });
  worker = std::make_unique<Worker>(std::move(engine), *kv_cache,
                                    WorkerConfig{.one_step_ahead = options.one_step_ahead,
                                                 .num_rows = options.num_rows,
                                                 .max_num_batched_tokens = 512,
                                                 .max_length = options.max_length,
                                                 .eos_ids = {}},
                                    *dispatcher);
}

std::future<Answer> ScriptedWorkerTest::submit(std::uint64_t seed, std::int32_t num_prompt_tokens,
                                               std::int32_t max_tokens, SamplingParams sampling) {
  auto collector = std::make_shared<ScriptedCollector>(on_output);
  std::future<Answer> future = collector->future();
  GenerationRequest request;
  request.prompt.assign(static_cast<std::size_t>(num_prompt_tokens), 1);
  request.sampling = std::move(sampling);
  request.sampling.max_tokens = max_tokens;
  request.sampling.seed = seed;
  dispatcher->open({.id = RequestId{seed}, .listener = collector, .stop = request.sampling.stop});
  worker->submit(RequestId{seed}, std::move(request));
  return future;
}

std::vector<std::int32_t> ScriptedWorkerTest::tokens_of(std::uint64_t seed,
                                                        std::int32_t count) const {
  std::vector<std::int32_t> tokens;
  for (std::int32_t index = 0; index < count; ++index) {
    tokens.push_back(script.token(seed, index));
  }
  return tokens;
}

void ScriptedWorkerTest::stop_and_check_pages() {
  script.release_device();
  worker->stop();
  EXPECT_EQ(kv_cache->arena().num_free() + kv_cache->arena().num_retiring(),
            kv_cache->arena().capacity());
  kv_cache->arena().check_conserved();
  EXPECT_EQ(worker->num_unfinished(), 0);
}

}  // namespace rigel::testing
