#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rigel {

/// Everything about a worker that a user can set. Zero means "choose for this device" where a comment says so.
struct WorkerOptions {
  std::string device = "auto";     // auto, cpu, cuda or cuda:i
  std::string dtype = "auto";      // auto, bfloat16, float32
  int num_threads = 0;             // CPU device; 0: one a core
  int max_model_len = 0;           // tokens; 0: the model's own, as far as the KV cache holds it
  int max_num_seqs = 0;            // rows; 0: 64 on cpu, 512 on cuda
  int max_num_batched_tokens = 0;  // a step's tokens; 0: 512 on cpu, 8192 on cuda
  std::int64_t kv_cache_memory_bytes = 0;  // 0: 1 GiB on cpu, 90 % of free memory on cuda
  std::int64_t swap_space_bytes = 0;       // host memory for pages of preempted requests
  int block_size = 16;                     // tokens a KV page: 16, 32 or 64
  bool enable_prefix_caching =
      true;                      // a prompt's beginning is not computed again while its pages last
  bool async_scheduling = true;  // launch a step before the one in front of it has been read
  bool enforce_eager = false;    // no captured steps: every launch of every step is enqueued
  std::string capture =
      "eager";  // when steps are captured: eager (before serving) or lazy (in idle moments)
  bool preplan =
      true;  // without async_scheduling: plan the next step while the device has this one
  bool programmatic_launches = true;  // cuda: small kernels start while the one before them ends
  int steps_per_launch = 1;  // decode steps that one launch of a captured step may run, up to 16
  int graph_slots = 2;       // double buffers of a captured step, 2 to 4
  std::vector<int> capture_sizes =
      {};  // lanes of the captured steps, ascending; none: the device's own
  std::vector<int> prefill_capture_sizes =
      {};  // tokens of the captured steps with prompts, ascending; none: the device's own; 0: none
  std::vector<int> piecewise_capture_sizes =
      {};  // tokens of captured blocks between attentions, for steps with prompts that are not captured whole; as above
  int max_waiting = 1024;  // requests that may wait for a row before submit refuses
  std::uint64_t seed = 0;  // base of the seeds of requests that bring none
  std::vector<std::string>
      device_texts;  // operations that run their device text on the CPU; "all" for every one
  std::string launch_order =
      "ascending";  // ascending, descending or random: order of threads under the SIMT executor
  std::uint64_t launch_seed = 0;  // of the random order
};

}  // namespace rigel
