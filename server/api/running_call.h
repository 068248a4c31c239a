#pragma once

#include "server/api/generation_call.h"
#include "server/api/ongoing_calls.h"
#include "server/http/exchange.h"
#include "server/text_codec.h"

#include <memory>
#include <string>

namespace rigel::server {

/// Runs a checked call to its answer: tokenizes, submits a request a choice and answers the exchange, streaming or whole,
/// as the service's deltas come in. A client that goes away, or lags too far behind, cancels its requests. Until its end the
/// call is one of `ongoing`: cut off, it answers 503 where nothing was sent yet and ends its stream with an error event else.
///
/// Returns once everything is submitted or refused; the rest happens on the service's dispatcher thread.
/// `request_id` names the call in the log and in errors that are ours.
void run_generation_call(const ServedModel& model, GenerationCall call,
                         std::shared_ptr<http::Exchange> exchange, const std::string& request_id,
                         OngoingCalls& ongoing);

/// The response for an error; 503 says when to come back.
[[nodiscard]] http::Response error_response(const ApiError& error);

/// The service's refusal in the words of the HTTP interface.
[[nodiscard]] ApiError api_error_of(const RequestError& error);

}  // namespace rigel::server
