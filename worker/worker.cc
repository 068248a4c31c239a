// The worker's loop: letters, steps, outputs.

#include "worker/worker.h"

#include "engine/piecewise_runners.h"
#include "model/language_model_walks.h"
#include "tensor/error.h"
#include "worker/composite.h"

#include <utility>

namespace rigel {

namespace {

std::vector<std::string> names_of(const NameTable<WalkId>& walks) {
  std::vector<std::string> names;
  for (std::size_t walk = 0; walk < walks.size(); ++walk) {
    names.push_back(walks.name(static_cast<WalkId>(walk)));
  }
  return names;
}

}  // namespace

Worker::Worker(Device& device, std::unique_ptr<Engine> engine, KvCache* kv_cache,
               const WorkerConfig& config, Dispatcher& dispatcher)
    : engine_(std::move(engine)),
      kv_cache_(kv_cache),
      config_(config),
      dispatcher_(dispatcher),
      table_(config.num_rows),
      program_(compile_language_model()),
      walks_(program_, engine_ != nullptr ? config.num_rows : 0),
      offloaded_(config.num_rows),
      scheduler_(table_, kv_cache, {config.max_num_batched_tokens}),
      idle_clock_(device),
      ends_row_(static_cast<std::size_t>(config.num_rows), 0) {
  const auto num_rows = static_cast<std::size_t>(config.num_rows);
  views_.reserve(num_rows);
  continuing_infos_.reserve(num_rows);
  for (FlyingStep& step : steps_) {
    step.prompts.reserve(num_rows);
    step.batch.reserve(num_rows);
  }
  expected_.reserve(num_rows);
  dispatcher_.reserve(num_rows);
}

Worker::Worker(std::unique_ptr<Engine> engine, KvCache& kv_cache, const WorkerConfig& config,
               Dispatcher& dispatcher)
    : Worker{engine->stream().device(), std::move(engine), &kv_cache, config, dispatcher} {
  decode_row_ = engine_->submodule().uniform_row_inputs(Names::kDecode);
  RIGEL_CHECK(decode_row_ != nullptr, "a language model's decode lanes share a row of inputs");
  max_decode_lanes_ =
      static_cast<std::size_t>(engine_->max_batch_size(Names::kDecode).value_or(config.num_rows));
  metrics_.graphs.emplace_back(*engine_, Names::kNodeName, names_of(program_.names.walks));
  engine_->set_clock(&clock_);
  begin();
}

Worker::Worker(CompositeModel model, const WorkerConfig& config, Dispatcher& dispatcher)
    : Worker(model.stream->device(), /*engine=*/nullptr, /*kv_cache=*/nullptr, config, dispatcher) {
  RIGEL_CHECK(config.steps_per_launch == 1,
              "steps_per_launch must be 1 for a model of several nodes, got {}",
              config.steps_per_launch);
  for (const auto& engine : model.engines) {
    engine->set_clock(&clock_);
  }
  CompositeListener& listener = *this;
  composite_ = std::make_unique<Composite>(std::move(model), table_, listener,
                                           config.max_num_batched_tokens);
  const walk::Names& names = composite_->names();
  for (std::size_t index = 0; index < names.nodes.size(); ++index) {
    const auto node = static_cast<NodeId>(index);
    metrics_.graphs.emplace_back(composite_->engine_of(node), names.nodes.name(node),
                                 names_of(names.walks));
  }
  begin();
}

void Worker::begin() {
  thread_ = std::thread([this] { run(); });
}

Worker::~Worker() {
  stop();
}

void Worker::stop() {
  if (thread_.joinable()) {
    mailbox_.put(Shutdown{});
    thread_.join();
  }
}

void Worker::submit(RequestId id, GenerationRequest request) {
  num_unfinished_.fetch_add(1, std::memory_order_relaxed);
  mailbox_.put(Submission{id, std::move(request), Clock::now()});
}

void Worker::cancel(RequestId id) {
  mailbox_.put(Cancellation{id});
}

void Worker::end_at_stop_string(RequestId id, std::int32_t num_tokens) {
  mailbox_.put(StopStringMet{id, num_tokens});
}

void Worker::run() {
  bool idle = true;
  while (!shutting_down_) {
    try {
      idle = !run_round(/*wait=*/idle && !has_captures_left());
    } catch (const DeviceError& error) {
      fail_everything(error.what());
      idle = false;
    } catch (const std::exception& error) {
      give_up(error.what());
      idle = false;
    }
  }
  while (table_.size() > 0) {
    finish(table_.any(), FinishReason::kCancelled, "");
  }
  post_outputs();
  if (config_.step_log != nullptr) {
    config_.step_log->close();
  }
}

/// False: nothing was done.
bool Worker::run_round(bool wait) {
  if (num_with_stop_strings_ > 0) {
    // So that a stop string costs at most the step in flight and the one that is launched next.
    dispatcher_.await_delivery(/*most_behind=*/1);
  }
  read_mail(wait);
  if (has_given_up_) {
    give_up(why_unhealthy_);
  }
  if (shutting_down_ || has_given_up_) {
    return post_outputs();
  }
  admit();
  update_gauges();
  const bool launches = !waits_for_turns() && launch_step();
  capture_more();
  if (launches && !config_.one_step_ahead && config_.steps_per_launch == 1) {
    preplan_step();
  }
  // A step that was launched may go on alone; the host turns to the one before it.
  const std::uint64_t max_in_flight = config_.one_step_ahead ? Engine::kMaxInFlight : 1;
  const bool completes = num_in_flight() >= (launches ? max_in_flight : 1);
  if (completes) {
    complete_step();
  }
  update_gauges();  // before anybody hears of an end
  const bool posted = post_outputs();
  end_round(launches, completes);
  // Whoever ended in this round may have left a row or pages to somebody who waits for them.
  return launches || completes || posted;
}

/// What comes behind several turns of a step is decided when they are over; and a step that may have several is one that
/// nobody in it has ended before.
bool Worker::waits_for_turns() {
  if (config_.steps_per_launch == 1 || num_in_flight() == 0) {
    return false;
  }
  if (engine_->launched_turns() > 1) {
    return true;
  }
  walks_.ready_nodes(&offloaded_, kPrefillNode, std::nullopt, ready_);
  return ready_.handles.empty();
}

void Worker::read_mail(bool wait) {
  if (wait) {
    idle_clock_.pause();
    clock_.enter(StepPhase::kWait);
    mailbox_.wait_and_take(letters_);
  } else {
    mailbox_.take(letters_);
  }
  clock_.enter(StepPhase::kBuild);
  for (Letter& letter : letters_) {
    try {
      read_letter(letter);
    } catch (const std::exception& error) {
      give_up(error.what());  // and every letter gets its answer
    }
  }
}

void Worker::read_letter(Letter& letter) {
  if (auto* submission = std::get_if<Submission>(&letter)) {
    accept(std::move(*submission));
  } else if (const auto* cancellation = std::get_if<Cancellation>(&letter)) {
    if (RequestState* request = table_.find(cancellation->id)) {
      finish(*request, FinishReason::kCancelled, "");
    }
  } else if (const auto* stop = std::get_if<StopStringMet>(&letter)) {
    if (RequestState* request = table_.find(stop->id)) {
      // What came after the token that completed the stop string was computed for nothing.
      metrics_.wasted(WasteReason::kStopString)
          .add(table_.num_launched_tokens(*request) - stop->num_tokens);
      const bool runs_turns = engine_ != nullptr && engine_->launched_turns() > 1;
      num_met_in_turns_ += runs_turns && table_.num_pending(*request) > 0 ? 1 : 0;
      finish(*request, FinishReason::kStop, "");
    }
  } else {
    shutting_down_ = true;
  }
}

bool Worker::has_captures_left() const {
  if (composite_ != nullptr) {
    return composite_->has_captures_left();
  }
  const StepCaptures* const captures = std::as_const(*engine_).captures();
  return captures != nullptr && captures->num_pending() > 0;
}

/// While the device has its step, or nobody wants anything.
void Worker::capture_more() {
  if (!has_captures_left()) {
    return;
  }
  try {
    if (composite_ != nullptr) {
      composite_->capture_next();
    } else {
      std::ignore = engine_->captures()->capture_next();
    }
  } catch (const DeviceError& error) {
    fail_everything(error.what());
  }
}

bool Worker::post_outputs() {
  return dispatcher_.post();
}

void Worker::end_round(bool launched, bool completed) {
  if (!launched && !completed) {
    return;
  }
  const StepClock::Seconds seconds = clock_.take(Clock::now());
  metrics_.observe_step(seconds);
  if (config_.step_log != nullptr && engine_ != nullptr) {
    log_step(launched, completed, seconds);
  }
}

/// A launch of several turns may end in a later round of the loop: both together are what it costs, spread over its steps.
void Worker::log_step(bool launched, bool completed, StepClock::Seconds seconds) {
  if (engine_->launched_turns() > 1) {
    launch_seconds_ = seconds;
    return;
  }
  const bool had_turns = completed && engine_->completed_turns() > 1;
  if (had_turns) {
    const StepClock::Seconds launch = std::exchange(launch_seconds_, {});
    for (std::size_t phase = 0; phase < seconds.size(); ++phase) {
      seconds[phase] =
          (seconds[phase] + launch[phase]) / static_cast<float>(engine_->completed_turns());
    }
  }
  const ExecutingBatch& batch = step_of(engine_->last_launched()).batch;
  const bool has_step = launched || had_turns;
  config_.step_log->record({.num_lanes = has_step ? batch.size() : 0,
                            .decodes_only = has_step && batch.walk == Names::kDecode,
                            .seconds = seconds,
                            .idle_seconds = config_.one_step_ahead ? 0.0f : idle_seconds_,
                            .costs = thread_costs()});
}

void Worker::update_gauges() {
  metrics_.num_running.set(static_cast<std::int64_t>(scheduler_.running().size()));
  metrics_.num_waiting.set(static_cast<std::int64_t>(scheduler_.num_waiting()));
  if (composite_ != nullptr) {
    update_composite_gauges();
    return;
  }
  const PageArena& arena = kv_cache_->arena();
  metrics_.pages_total.set(arena.capacity());
  metrics_.pages_in_use.set(arena.capacity() - kv_cache_->num_available());
}

}  // namespace rigel
