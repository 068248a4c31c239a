#pragma once

#include "tensor/stream.h"

namespace rigel {

/// Runs `function(data)` on a thread of the device, in stream order. It must not throw, must not call the device, and must
/// not be slow: the stream waits for it. In a capture it becomes a node, and `data` must outlive the graph.
void enqueue_host_function(StreamRef stream, const char* name, void (*function)(void*), void* data);

/// The same for the collectives of one communicator: functions with the same `order_key` keep their order in every replay of
/// the virtual device, although no stream connects them. (On CUDA collectives are no host functions: NCCL orders its own.)
void enqueue_ordered_host_function(StreamRef stream, const char* name, const void* order_key,
                                   void (*function)(void*), void* data);

}  // namespace rigel
