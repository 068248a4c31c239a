#pragma once

#include "worker/service.h"

#include <string>
#include <string_view>

namespace rigel::server {

/// The service's counters as Prometheus text (version 0.0.4), under vLLM's names where vLLM has the thing. Pure.
///
/// Written by hand: the numbers arrive as one consistent snapshot, and a registry of live counters would only add a
/// second place where they are kept. What this build does not measure is absent, not zero.
[[nodiscard]] std::string prometheus_text(const ServiceMetrics& metrics,
                                          std::string_view model_name);

}  // namespace rigel::server
