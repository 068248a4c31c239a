#pragma once

#include "model/model_files.h"
#include "server/model_codec.h"
#include "server/text_codec.h"
#include "worker/local_service.h"
#include "worker/options.h"

#include <memory>
#include <string>

namespace rigel::server {

/// A model opened, loaded and running in this process.
class ModelSession {
 public:
  /// Loads; shows progress on a terminal. Throws ModelFileError, text::TextError, std::invalid_argument.
  ModelSession(const std::string& path, const WorkerOptions& options);

  /// What callers know it by: the file's name without .gguf, or the directory's name.
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const ModelFiles& files() const { return files_; }
  [[nodiscard]] const ModelCodec& text() const { return codec_; }
  [[nodiscard]] LocalService& service() const { return *service_; }

 private:
  std::string name_;
  ModelFiles files_;
  ModelCodec codec_;
  std::unique_ptr<LocalService> service_;  // uses both above
};

}  // namespace rigel::server
