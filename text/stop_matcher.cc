#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace rigel::text {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings, bool include_stop)
    : stop_strings_(std::move(stop_strings)), include_stop_(include_stop) {
  for (const std::string& stop : stop_strings_) {
    if (!stop.empty()) {
      first_bytes_.push_back(stop[0]);
    }
  }
}

StopMatcher::Begins StopMatcher::classify(std::size_t begin) {
  const std::string_view rest = std::string_view(held_).substr(begin);
  bool is_prefix = false;
  for (std::size_t i = 0; i < stop_strings_.size(); ++i) {
    const std::string& stop = stop_strings_[i];
    if (stop.empty()) {
      continue;
    }
    if (rest.starts_with(stop) && begin + stop.size() > num_passed_bytes_) {
      const bool is_first = !has_matched() || stop.size() < stop_strings_[matched_stop_].size();
      matched_stop_ = is_first ? i : matched_stop_;
    }
    is_prefix = is_prefix || (rest.size() < stop.size() && stop.starts_with(rest));
  }
  if (has_matched()) {
    return Begins::kMatch;
  }
  return is_prefix ? Begins::kPrefix : Begins::kNothing;
}

bool StopMatcher::take(bool is_end, std::string& out) {
  const std::string_view text = held_;
  std::size_t num_emitted = text.size();
  for (std::size_t i = text.find_first_of(first_bytes_); i != std::string_view::npos;
       i = text.find_first_of(first_bytes_, i + 1)) {
    const Begins begins = classify(i);
    if (begins == Begins::kMatch) {
      out.append(text.substr(0, i));
      if (include_stop_) {
        out.append(stop_strings_[matched_stop_]);
      }
      held_.clear();
      return true;
    }
    if (begins == Begins::kPrefix && !is_end) {
      num_emitted = i;
      break;
    }
  }
  out.append(text.substr(0, num_emitted));
  held_.erase(0, num_emitted);
  num_passed_bytes_ -= std::min(num_passed_bytes_, num_emitted);
  return false;
}

bool StopMatcher::push(std::string_view chunk, std::string& out) {
  if (has_matched()) {
    return true;
  }
  held_.append(chunk);
  return take(/*is_end=*/false, out);
}

void StopMatcher::pass(std::string_view chunk, std::string& out) {
  held_.append(chunk);
  num_passed_bytes_ = held_.size();
  take(/*is_end=*/false, out);
}

bool StopMatcher::flush(std::string& out) {
  return has_matched() || take(/*is_end=*/true, out);
}

}  // namespace rigel::text
