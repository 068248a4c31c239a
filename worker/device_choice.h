#pragma once

#include "model/language_model_loader.h"
#include "tensor/device_options.h"
#include "worker/options.h"

namespace rigel {

/// The device that `options` ask for. Throws std::invalid_argument where this build has no such device.
[[nodiscard]] DeviceOptions device_options(const WorkerOptions& options);

/// The model's options with the defaults of the device. Throws std::invalid_argument naming an option out of range.
[[nodiscard]] LanguageModelOptions language_model_options(const WorkerOptions& options,
                                                          bool is_cuda);

}  // namespace rigel
