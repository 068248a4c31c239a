#pragma once

#include "engine/resources/page_arena.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rigel {

/// Which pages hold the keys and values of which tokens: a tree whose nodes are full pages, each known by its parent and its
/// own tokens. Two pages of the same tokens behind different prefixes are different nodes; the first writer of a node wins.
///
/// The index is one owner of each of its pages, counted by whoever counts owners; it is told when a page has others. A page
/// that only the index owns, with no such page below it, can be evicted, the one unused longest first.
/// Lookups go by a 64-bit hash of the chain and then compare parent and tokens, so a collision costs time, never tokens.
/// Thread: worker. Nothing allocates after construction. Cost of each call: O(page size), amortised.
class PrefixIndex {
 public:
  /// A node, or the root. One of an evicted node is not valid any more, whoever has its place now.
  struct Node {
    std::int32_t index = -1;
    std::uint32_t generation = 0;
  };
  struct Evicted {
    PageIndex page{};
    Epoch last_touch = 0;
  };

  /// `num_pages` of the pool, sink included. `fingerprint` is of everything beside the tokens that decides what a page holds.
  PrefixIndex(std::int32_t num_pages, std::int32_t page_size, std::uint64_t fingerprint);

  [[nodiscard]] static Node root() { return {}; }
  [[nodiscard]] bool is_valid(Node node) const;
  /// The page that holds `tokens` (one page of them) behind `parent`, which must be valid; it counts as used now.
  [[nodiscard]] std::optional<Node> find(Node parent, std::span<const std::int32_t> tokens);
  /// Makes the node that find did not. The page has another owner, its writer, and must not be in the index.
  Node insert(Node parent, std::span<const std::int32_t> tokens, PageIndex page);
  [[nodiscard]] PageIndex page(Node node) const;
  [[nodiscard]] bool contains(PageIndex page) const { return node_of(page) >= 0; }

  /// Whether a page of the index has other owners.
  void set_shared(PageIndex page, bool is_shared);
  /// A step up to `epoch` may touch a page of the index.
  void note_touch(PageIndex page, Epoch epoch);

  /// Forgets the evictable page that was unused longest; the caller releases it. None where nothing is evictable, or where
  /// steps after `completed` may still touch that page.
  [[nodiscard]] std::optional<Evicted> evict(Epoch completed);

  [[nodiscard]] std::int32_t num_pages() const { return num_pages_; }
  /// Pages that repeated eviction would give, once the steps in flight have completed.
  [[nodiscard]] std::int32_t num_evictable() const { return num_evictable_; }
  /// Throws CheckError where the tree's counts are not what its nodes say. O(nodes).
  void check() const;

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint64_t stamp = 0;  // of the last use
    Epoch last_touch = 0;
    PageIndex page = kSinkPage;  // the sink: the entry is free
    std::int32_t parent = -1;
    std::int32_t next = -1;  // in the bucket, or among the free entries
    std::int32_t num_children = 0;
    std::int32_t num_held_children = 0;
    std::uint32_t generation = 0;
    bool is_shared = false;
  };
  struct Leaf {
    std::uint64_t stamp;
    std::int32_t index;
    friend bool operator>(const Leaf& a, const Leaf& b) { return a.stamp > b.stamp; }
  };

  [[nodiscard]] Entry& at(std::int32_t index) { return entries_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] const Entry& at(std::int32_t index) const {
    return entries_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int32_t node_of(PageIndex page) const {
    return node_of_page_.at(static_cast<std::size_t>(page));
  }
  [[nodiscard]] std::int32_t& bucket(std::uint64_t hash) {
    return buckets_[hash & (buckets_.size() - 1)];
  }
  [[nodiscard]] std::span<std::int32_t> tokens_of(std::int32_t index);
  [[nodiscard]] std::uint64_t chain_hash(Node parent, std::span<const std::int32_t> tokens) const;
  /// A held node must stay: somebody else owns its page, or a page below it.
  [[nodiscard]] bool is_held(const Entry& entry) const {
    return entry.is_shared || entry.num_held_children > 0;
  }
  [[nodiscard]] bool is_evictable_leaf(const Entry& entry) const {
    return entry.num_children == 0 && !is_held(entry);
  }
  void held_changed(std::int32_t index);
  void push_leaf(std::int32_t index);
  void unlink(std::int32_t index);

  std::int32_t page_size_;
  std::uint64_t fingerprint_;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> tokens_;        // (entries, page_size)
  std::vector<std::int32_t> buckets_;       // by hash: first entry
  std::vector<std::int32_t> node_of_page_;  // -1: not in the index
  std::vector<Leaf> leaves_;  // heap, oldest first; with entries that have changed since
  std::int32_t first_free_ = -1;
  std::int32_t num_pages_ = 0;
  std::int32_t num_evictable_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace rigel
