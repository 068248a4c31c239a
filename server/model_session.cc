#include "server/model_session.h"

#include "server/commands/progress_bar.h"
#include "server/log.h"

#include <fmt/core.h>

#include <chrono>
#include <filesystem>

namespace rigel::server {
namespace {

class ShownProgress final : public LoadProgress {
 public:
  void advance(std::int64_t bytes_done, std::int64_t bytes_total) override {
    bar_.show(bytes_done, bytes_total);
  }

 private:
  ProgressBar bar_{"loading", "bytes"};
};

std::string name_of_path(const std::string& path) {
  std::filesystem::path last = std::filesystem::absolute(path).lexically_normal();
  if (!last.has_filename()) {
    last = last.parent_path();  // it ended in a slash
  }
  return (last.extension() == ".gguf" ? last.stem() : last.filename()).string();
}

}  // namespace

ModelSession::ModelSession(const std::string& path, const WorkerOptions& options)
    : name_(name_of_path(path)), files_(open_model_files(path)), codec_(files_.tokenizer) {
  const auto begun = std::chrono::steady_clock::now();
  ShownProgress progress;
  service_ = start_local_service(files_, codec_.tokenizer(), options, &progress);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  const ServiceDescription& description = service_->description();
  log_debug(fmt::format("{} loaded in {:.2f} s: {}, {}, gemm {}", name_, seconds.count(),
                        description.device, description.dtype, description.gemm));
}

}  // namespace rigel::server
