#pragma once

#include <cstdint>

// Philox4x32-10, a counter-based random generator: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011. Stateless, so a draw depends on what it is for and on nothing else. The same bits on every device.

namespace rigel::kernels {

struct PhiloxCounter {
  std::uint32_t word[4];
};

struct PhiloxKey {
  std::uint32_t word[2];
};

/// 128 random bits of a counter under a key.
static constexpr PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.word[0],
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.word[1],
                static_cast<std::uint32_t>(product0)}};
    key = {{key.word[0] + 0x9E3779B9u, key.word[1] + 0xBB67AE85u}};
  }
  return counter;
}

/// The 64 uniform bits that choose a request's token: the key is the request's seed, the counter the absolute position of the
/// token and the sampler (a request may have several). Neither lane nor row takes part.
static constexpr std::uint64_t uniform_bits(std::uint64_t seed, std::uint32_t sampler_id,
                                            std::int32_t position) {
  const PhiloxKey key{{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  const PhiloxCounter counter{{static_cast<std::uint32_t>(position), 0, sampler_id, 0}};
  const PhiloxCounter bits = philox4x32(counter, key);
  return bits.word[0] | (static_cast<std::uint64_t>(bits.word[1]) << 32);
}

}  // namespace rigel::kernels
