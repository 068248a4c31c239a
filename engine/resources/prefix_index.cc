#include "engine/resources/prefix_index.h"

#include "tensor/error.h"

#include <algorithm>
#include <bit>

namespace rigel {

namespace {

/// The finalizer of MurmurHash3 over the running value and one more.
std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93ULL;
  return hash ^ (hash >> 32);
}

}  // namespace

PrefixIndex::PrefixIndex(std::int32_t num_pages, std::int32_t page_size, std::uint64_t fingerprint)
    : page_size_(page_size),
      fingerprint_(fingerprint),
      entries_(static_cast<std::size_t>(num_pages)),
      tokens_(static_cast<std::size_t>(num_pages) * static_cast<std::size_t>(page_size)),
      buckets_(std::bit_ceil(static_cast<std::size_t>(num_pages) * 2), -1),
      node_of_page_(static_cast<std::size_t>(num_pages), -1) {
  leaves_.reserve(entries_.size() * 2);
  for (std::int32_t index = num_pages - 1; index >= 0; --index) {
    at(index).next = first_free_;
    first_free_ = index;
  }
}

bool PrefixIndex::is_valid(Node node) const {
  return node.index < 0 ||
         (at(node.index).page != kSinkPage && at(node.index).generation == node.generation);
}

std::span<std::int32_t> PrefixIndex::tokens_of(std::int32_t index) {
  const auto size = static_cast<std::size_t>(page_size_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(index) * size, size);
}

std::uint64_t PrefixIndex::chain_hash(Node parent, std::span<const std::int32_t> tokens) const {
  RIGEL_CHECK(is_valid(parent), "node {} of the prefix index was evicted", parent.index);
  RIGEL_CHECK(tokens.size() == static_cast<std::size_t>(page_size_),
              "a page holds {} tokens, got {}", page_size_, tokens.size());
  std::uint64_t hash = parent.index < 0 ? mix(fingerprint_, 1) : at(parent.index).hash;
  for (const std::int32_t token : tokens) {
    hash = mix(hash, static_cast<std::uint32_t>(token));
  }
  return hash;
}

std::optional<PrefixIndex::Node> PrefixIndex::find(Node parent,
                                                   std::span<const std::int32_t> tokens) {
  const std::uint64_t hash = chain_hash(parent, tokens);
  for (std::int32_t index = bucket(hash); index >= 0; index = at(index).next) {
    Entry& entry = at(index);
    if (entry.hash == hash && entry.parent == parent.index &&
        std::ranges::equal(tokens_of(index), tokens)) {
      entry.stamp = ++clock_;
      if (is_evictable_leaf(entry)) {
        push_leaf(index);
      }
      return Node{index, entry.generation};
    }
  }
  return std::nullopt;
}

PrefixIndex::Node PrefixIndex::insert(Node parent, std::span<const std::int32_t> tokens,
                                      PageIndex page) {
  RIGEL_CHECK(!contains(page) && page != kSinkPage, "page {} is in the prefix index already",
              static_cast<int>(page));
  const std::uint64_t hash = chain_hash(parent, tokens);
  const std::int32_t index = first_free_;
  first_free_ = at(index).next;
  Entry& entry = at(index);
  entry = Entry{.hash = hash,
                .stamp = ++clock_,
                .page = page,
                .parent = parent.index,
                .next = bucket(hash),
                .generation = entry.generation + 1};
  bucket(hash) = index;
  std::ranges::copy(tokens, tokens_of(index).begin());
  node_of_page_[static_cast<std::size_t>(page)] = index;
  ++num_pages_;
  ++num_evictable_;
  if (parent.index >= 0) {
    ++at(parent.index).num_children;
  }
  set_shared(page, true);
  return {index, entry.generation};
}

PageIndex PrefixIndex::page(Node node) const {
  RIGEL_CHECK(node.index >= 0 && is_valid(node), "node {} of the prefix index has no page",
              node.index);
  return at(node.index).page;
}

void PrefixIndex::set_shared(PageIndex page, bool is_shared) {
  Entry& entry = at(node_of(page));
  if (entry.is_shared == is_shared) {
    return;
  }
  const bool was_held = is_held(entry);
  entry.is_shared = is_shared;
  if (is_held(entry) != was_held) {
    held_changed(node_of(page));
  }
}

/// Counts upwards as far as it makes a difference: a chain that is let go from its end costs one level a page.
void PrefixIndex::held_changed(std::int32_t index) {
  while (index >= 0) {
    Entry& entry = at(index);
    const bool held = is_held(entry);
    num_evictable_ += held ? -1 : 1;
    if (is_evictable_leaf(entry)) {
      push_leaf(index);
    }
    if (entry.parent < 0) {
      return;
    }
    Entry& parent = at(entry.parent);
    const bool was_held = is_held(parent);
    parent.num_held_children += held ? 1 : -1;
    if (is_held(parent) == was_held) {
      return;
    }
    index = entry.parent;
  }
}

void PrefixIndex::note_touch(PageIndex page, Epoch epoch) {
  Entry& entry = at(node_of(page));
  entry.last_touch = std::max(entry.last_touch, epoch);
}

void PrefixIndex::push_leaf(std::int32_t index) {
  if (leaves_.size() == leaves_.capacity()) {
    // Mostly leaves that were used or held again since: begin anew with those that are there.
    leaves_.clear();
    for (std::size_t other = 0; other < entries_.size(); ++other) {
      const Entry& entry = entries_[other];
      if (entry.page != kSinkPage && is_evictable_leaf(entry)) {
        leaves_.push_back({entry.stamp, static_cast<std::int32_t>(other)});
      }
    }
    std::ranges::make_heap(leaves_, std::greater<>());
    return;
  }
  leaves_.push_back({at(index).stamp, index});
  std::ranges::push_heap(leaves_, std::greater<>());
}

std::optional<PrefixIndex::Evicted> PrefixIndex::evict(Epoch completed) {
  while (!leaves_.empty()) {
    const Leaf oldest = leaves_.front();
    const Entry& entry = at(oldest.index);
    const bool is_current =
        entry.page != kSinkPage && entry.stamp == oldest.stamp && is_evictable_leaf(entry);
    if (is_current && entry.last_touch > completed) {
      return std::nullopt;
    }
    std::ranges::pop_heap(leaves_, std::greater<>());
    leaves_.pop_back();
    if (is_current) {
      const Evicted evicted{entry.page, entry.last_touch};
      unlink(oldest.index);
      return evicted;
    }
  }
  return std::nullopt;
}

void PrefixIndex::unlink(std::int32_t index) {
  Entry& entry = at(index);
  std::int32_t* link = &bucket(entry.hash);
  while (*link != index) {
    link = &at(*link).next;
  }
  *link = entry.next;
  node_of_page_[static_cast<std::size_t>(entry.page)] = -1;
  const std::int32_t parent = entry.parent;
  entry.page = kSinkPage;
  entry.next = first_free_;
  first_free_ = index;
  --num_pages_;
  --num_evictable_;
  if (parent >= 0) {
    --at(parent).num_children;
    if (is_evictable_leaf(at(parent))) {
      push_leaf(parent);
    }
  }
}

void PrefixIndex::check() const {
  std::vector<std::int32_t> children(entries_.size(), 0);
  std::vector<std::int32_t> held_children(entries_.size(), 0);
  std::int32_t num_nodes = 0;
  std::int32_t num_held = 0;
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (entry.page == kSinkPage) {
      continue;
    }
    ++num_nodes;
    num_held += is_held(entry) ? 1 : 0;
    RIGEL_CHECK(node_of(entry.page) == static_cast<std::int32_t>(index),
                "page {} is in the prefix index under another node", static_cast<int>(entry.page));
    if (entry.parent >= 0) {
      RIGEL_CHECK(at(entry.parent).page != kSinkPage, "node {} lost its parent", index);
      ++children[static_cast<std::size_t>(entry.parent)];
      held_children[static_cast<std::size_t>(entry.parent)] += is_held(entry) ? 1 : 0;
    }
  }
  RIGEL_CHECK(num_nodes == num_pages_ && num_nodes - num_held == num_evictable_,
              "the prefix index counts {} pages, {} evictable; it has {} and {}", num_pages_,
              num_evictable_, num_nodes, num_nodes - num_held);
  for (std::size_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    RIGEL_CHECK(entry.page == kSinkPage || (entry.num_children == children[index] &&
                                            entry.num_held_children == held_children[index]),
                "node {} of the prefix index miscounts its children", index);
  }
}

}  // namespace rigel
