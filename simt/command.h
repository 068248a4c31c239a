#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace simt {

class VirtualDevice;
struct DeviceFault;

/// One piece of work of a stream or node of a graph: a function and the closure it is given, stored inline so that an
/// enqueue never touches the heap. Closures are trivially copyable: replaying one is running the same bytes again.
struct Command {
  enum class Kind : std::uint8_t {
    kKernel,
    kNative,
    kCopy,
    kFill,
    kHostFunction,
    kMemory,  // a block changes hands: runs even after a failure, like the next two
    kMark,    // stores the time for a timed event
    kWait,    // waits for a moment of another queue
    kGraph,   // replays a program
  };
  using Run = void (*)(void* closure, VirtualDevice& device, DeviceFault& fault);
  static constexpr std::size_t kClosureBytes = 384;

  Run run = nullptr;
  const char* name = "";
  Kind kind = Kind::kKernel;
  std::uint32_t num_bytes = 0;
  /// Nodes of a graph that carry the same non-null key keep their order in every replay (collectives of a communicator).
  const void* order_key = nullptr;
  alignas(16) std::byte closure[kClosureBytes];

  Command() = default;
  /// `Closure` has `void operator()(VirtualDevice&, DeviceFault&)`, which leaves the fault alone when all is well.
  template <class Closure>
  Command(Kind command_kind, const char* command_name, const Closure& work)
      : run([](void* stored, VirtualDevice& device, DeviceFault& fault) {
          (*static_cast<Closure*>(stored))(device, fault);
        }),
        name(command_name),
        kind(command_kind),
        num_bytes(sizeof(Closure)) {
    static_assert(std::is_trivially_copyable_v<Closure>, "a closure is copied as bytes");
    static_assert(sizeof(Closure) <= kClosureBytes, "the closure is too big: pass a pointer");
    static_assert(alignof(Closure) <= 16);
    std::memcpy(closure, &work, sizeof(Closure));
  }
  // Copies only the bytes in use: most closures are a tenth of the capacity.
  Command(const Command& other) { *this = other; }
  Command& operator=(const Command& other) {
    if (this != &other) {
      run = other.run;
      name = other.name;
      kind = other.kind;
      num_bytes = other.num_bytes;
      order_key = other.order_key;
      std::memcpy(closure, other.closure, num_bytes);
    }
    return *this;
  }
  ~Command() = default;
};

}  // namespace simt
