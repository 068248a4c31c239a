#include "tests/worker/request_mix.h"

#include "text/byte_letters.h"
#include "text/utf8.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>

namespace rigel::testing {

namespace {

using text::TokenType;

constexpr std::int32_t kNumControlTokens = 3;
constexpr std::int32_t kEndToken = 2;
constexpr std::string_view kLetters = "etaoinshrdlu";

class MixMaker {
 public:
  MixMaker(std::uint32_t seed, std::int32_t vocab_size)
      : random_(seed), vocab_size_(vocab_size), is_crowd_(seed % 5 == 0) {}

  std::vector<MixedRequest> make() {
    const std::size_t wanted = 3 + below(10);
    std::vector<MixedRequest> mix;
    while (mix.size() < wanted) {
      const MixedRequest request = make_request();
      // Several answers to one prompt are as many requests, with seeds one after the other.
      const std::size_t num_answers = one_in(8) ? 2 + below(2) : 1;
      for (std::size_t answer = 0; answer < num_answers && mix.size() < wanted; ++answer) {
        mix.push_back(request);
        *mix.back().request.sampling.seed += answer;
      }
    }
    return mix;
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }
  bool one_in(std::uint32_t odds) { return below(odds) == 0; }
  std::int32_t any_token() {
    return kNumControlTokens +
           static_cast<std::int32_t>(below(static_cast<std::uint32_t>(vocab_size_) - 3));
  }

  MixedRequest make_request() {
    MixedRequest mixed;
    // Most prompts are short; some take several pages and several steps.
    constexpr std::array<std::uint32_t, 4> kLongest = {8, 40, 100, 200};
    mixed.request.prompt.resize(1 + below(kLongest[below(is_crowd_ ? 2 : 4)]));
    for (std::int32_t& token : mixed.request.prompt) {
      token = any_token();
    }
    mixed.arrives_after = static_cast<int>(is_crowd_ || one_in(2) ? 0 : below(60));
    if (one_in(5)) {
      mixed.cancel_after = static_cast<int>(below(12));
    }
    choose_sampling(mixed.request.sampling);
    choose_stops(mixed.request.sampling);
    if (one_in(8)) {
      mixed.request.prompt_top = static_cast<int>(below(4));
      mixed.request.keep_last_logits = one_in(2);
      mixed.request.sampling.max_tokens = 0;
    }
    return mixed;
  }

  void choose_sampling(SamplingParams& sampling) {
    sampling.temperature = one_in(2) ? 0.0f : 0.4f + 0.2f * static_cast<float>(below(6));
    sampling.top_k = one_in(2) ? 0 : static_cast<int>(1 + below(60));
    sampling.top_p = one_in(2) ? 1.0f : 0.5f + 0.1f * static_cast<float>(below(5));
    sampling.min_p = one_in(4) ? 0.05f : 0.0f;
    sampling.seed = random_();
    if (one_in(3)) {
      sampling.repetition_penalty = one_in(2) ? 1.3f : 1.0f;
      sampling.frequency_penalty = one_in(2) ? 0.4f : 0.0f;
      sampling.presence_penalty = one_in(2) ? 0.6f : 0.0f;
    }
    if (one_in(4)) {
      sampling.logit_bias = {{any_token(), 3.0f}, {any_token(), -100.0f}};
    }
    if (one_in(2)) {
      sampling.logprobs = static_cast<int>(below(6));
    }
  }

  void choose_stops(SamplingParams& sampling) {
    sampling.max_tokens = static_cast<int>(is_crowd_ ? 30 + below(30) : 1 + below(16));
    sampling.ignore_eos = one_in(2);
    if (one_in(4)) {
      sampling.min_tokens = static_cast<int>(below(8));
    }
    if (one_in(3)) {
      for (std::uint32_t count = 1 + below(3); count > 0; --count) {
        std::string& stop = sampling.stop.emplace_back();
        for (std::uint32_t length = 1 + below(2); length > 0; --length) {
          stop += kLetters[below(kLetters.size())];
        }
      }
    }
    if (one_in(3)) {
      // Many, so that some request meets one before its length.
      for (int count = 0; count < 24; ++count) {
        sampling.stop_token_ids.push_back(any_token());
      }
    }
    sampling.include_stop_in_output = one_in(3);
    sampling.skip_special_tokens = !one_in(4);
  }

  std::mt19937 random_;
  std::int32_t vocab_size_;
  bool is_crowd_;  // many that come at once, begin small and grow together
};

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

bool same_logprob(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && same_bits(a.logprob, b.logprob);
}

bool is_prefix(const MixedAnswer& answer, const MixedAnswer& whole) {
  return answer.ids.size() <= whole.ids.size() && answer.logprobs.size() <= whole.logprobs.size() &&
         std::ranges::equal(answer.ids, std::span(whole.ids).first(answer.ids.size())) &&
         std::ranges::equal(answer.logprobs,
                            std::span(whole.logprobs).first(answer.logprobs.size()), same_logprob);
}

bool same_scores(const PromptScores& a, const PromptScores& b) {
  const auto same_top = [](const auto& x, const auto& y) {
    return std::ranges::equal(x, y, same_logprob);
  };
  return std::ranges::equal(a.logprobs, b.logprobs, same_bits) &&
         std::ranges::equal(a.top, b.top, same_top) &&
         std::ranges::equal(a.last_logits, b.last_logits, same_bits);
}

bool is_same(const MixedAnswer& answer, const MixedAnswer& whole) {
  return is_prefix(answer, whole) && answer.ids.size() == whole.ids.size() &&
         answer.logprobs.size() == whole.logprobs.size() && answer.text == whole.text &&
         answer.finish == whole.finish && answer.stop_string == whole.stop_string &&
         answer.error == whole.error && same_scores(answer.scores, whole.scores);
}

std::string describe(const MixedAnswer& answer) {
  return fmt::format("{} ids {}, text '{}', {} log-probabilities, {} scores, stop string '{}' {}",
                     name_of(answer.finish), answer.ids, answer.text, answer.logprobs.size(),
                     answer.scores.logprobs.size(), answer.stop_string, answer.error);
}

}  // namespace

std::vector<MixedRequest> make_request_mix(std::uint32_t seed, std::int32_t vocab_size) {
  return MixMaker(seed, vocab_size).make();
}

text::TokenizerSpec make_mix_vocabulary(std::int32_t vocab_size) {
  text::TokenizerSpec spec;
  spec.pre = "gpt-2";
  spec.tokens = {"<pad>", "<s>", "</s>"};
  spec.types.assign(kNumControlTokens, TokenType::kControl);
  // The single bytes, which cut characters of several bytes apart, then pairs of letters.
  for (int byte = 0; byte < 256; ++byte) {
    text::append_utf8(text::letter_of_byte(static_cast<std::uint8_t>(byte)),
                      spec.tokens.emplace_back());
  }
  for (std::size_t pair = 0; static_cast<std::int32_t>(spec.tokens.size()) < vocab_size; ++pair) {
    const std::size_t count = kLetters.size();
    spec.tokens.push_back({kLetters[pair / count % count], kLetters[pair % count]});
    if (pair >= count * count) {
      spec.tokens.back() += std::to_string(pair / (count * count));
    }
  }
  spec.types.resize(spec.tokens.size(), TokenType::kNormal);
  spec.eos = kEndToken;
  spec.end_of_generation = {kEndToken};
  return spec;
}

std::string find_difference(const MixedRequest& request, const MixedAnswer& answer,
                            const MixedAnswer& whole, Cancels cancels) {
  const bool was_cancelled = cancels == Cancels::kObey && request.cancel_after.has_value() &&
                             answer.finish == FinishReason::kCancelled;
  const bool same = was_cancelled ? is_prefix(answer, whole) : is_same(answer, whole);
  return same ? ""
              : fmt::format("\n  expected {}\n  got      {}", describe(whole), describe(answer));
}

std::string describe(const MixedRequest& mixed) {
  const SamplingParams& sampling = mixed.request.sampling;
  std::string text = fmt::format(
      "prompt of {} tokens, arrives after {}, max_tokens {}, min_tokens {}, temperature {}, top_k "
      "{}, top_p {}, min_p {}, seed {}",
      mixed.request.prompt.size(), mixed.arrives_after, sampling.max_tokens, sampling.min_tokens,
      sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, *sampling.seed);
  text += fmt::format(", penalties {} {} {}, logprobs {}", sampling.repetition_penalty,
                      sampling.presence_penalty, sampling.frequency_penalty,
                      sampling.logprobs.value_or(-1));
  text += fmt::format(", {} biases, stop {}, {} stop tokens", sampling.logit_bias.size(),
                      sampling.stop, sampling.stop_token_ids.size());
  text += mixed.request.prompt_top ? ", scored" : "";
  text += sampling.ignore_eos ? ", ignore_eos" : "";
  text += sampling.include_stop_in_output ? ", include_stop_in_output" : "";
  text += sampling.skip_special_tokens ? "" : ", with special tokens";
  return mixed.cancel_after ? text + fmt::format(", cancelled after {}", *mixed.cancel_after)
                            : text;
}

}  // namespace rigel::testing
