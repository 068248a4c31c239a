#include "worker/stream_buffer_table.h"

#include "tensor/error.h"

#include <utility>

namespace rigel {

StreamBufferTable::StreamBufferTable(const walk::Program& program, std::int32_t num_rows)
    : program_(program),
      rows_(static_cast<std::size_t>(num_rows)),
      finite_into_node_(program.names.nodes.size()),
      finite_into_partition_(program.names.nodes.size()) {
  std::vector<StreamMask> by_partition(program.partitions.size());
  for (std::size_t index = 0; index < program.streams.size(); ++index) {
    const walk::Stream& stream = program.streams[index];
    if (stream.finite()) {
      finite_into_node_[static_cast<std::size_t>(stream.consumer)] |= StreamMask{1} << index;
      by_partition[static_cast<std::size_t>(stream.to)] |= StreamMask{1} << index;
    }
  }
  for (const walk::CompiledWalk& walk : program.walks) {
    for (const walk::CompiledNode& node : walk.nodes) {
      finite_into_partition_[static_cast<std::size_t>(node.id)] =
          by_partition[static_cast<std::size_t>(walk.partition)];
    }
  }
}

StreamBufferTable::Row* StreamBufferTable::row_of(RequestHandle handle) {
  if (handle.row < 0 || static_cast<std::size_t>(handle.row) >= rows_.size()) {
    return nullptr;
  }
  Row& row = rows_[static_cast<std::size_t>(handle.row)];
  return row.handle == handle ? &row : nullptr;
}

void StreamBufferTable::open(RequestHandle handle) {
  if (row_of(handle) != nullptr) {
    return;
  }
  Row& row = rows_.at(static_cast<std::size_t>(handle.row));
  RIGEL_CHECK(row.handle.is_padding(), "row {} still has the streams of another request",
              handle.row);
  row.handle = handle;
  row.buffers.reserve(program_.streams.size());
  for (const walk::Stream& stream : program_.streams) {
    row.buffers.emplace_back(stream.chunks);
  }
}

void StreamBufferTable::close(RequestHandle handle) {
  if (Row* row = row_of(handle)) {
    *row = Row{};
  }
}

StreamBuffer* StreamBufferTable::find(RequestHandle handle, walk::StreamId stream) {
  Row* row = row_of(handle);
  return row == nullptr ? nullptr : &row->buffers.at(static_cast<std::size_t>(stream));
}

void StreamBufferTable::producer_done(RequestHandle handle, PartitionId producer) {
  Row* row = row_of(handle);
  if (row == nullptr) {
    return;
  }
  for (std::size_t index = 0; index < program_.streams.size(); ++index) {
    if (program_.streams[index].from == producer) {
      row->buffers[index].signal_done();
    }
  }
}

StreamChunk StreamBufferTable::pop_chunk(RequestHandle handle, walk::StreamId stream,
                                         StreamRef copies, TensorAllocator& allocator) {
  Row* row = row_of(handle);
  RIGEL_CHECK(row != nullptr, "row {} has no streams", handle.row);
  const auto index = static_cast<std::size_t>(stream);
  StreamChunk chunk = row->buffers.at(index).pop_chunk(copies, allocator);
  if (chunk.info.is_final) {
    row->ended |= StreamMask{1} << index;
  }
  return chunk;
}

void StreamBufferTable::give_back(RequestHandle handle, walk::StreamId stream, StreamChunk chunk) {
  Row* row = row_of(handle);
  if (row == nullptr) {
    return;
  }
  const auto index = static_cast<std::size_t>(stream);
  if (chunk.info.is_final) {
    row->ended &= ~(StreamMask{1} << index);
  }
  row->buffers.at(index).give_back(std::move(chunk));
}

StreamBufferTable::Ends StreamBufferTable::ends(RequestHandle handle, NodeId consumer) const {
  const Row* row = const_cast<StreamBufferTable*>(this)->row_of(handle);
  if (row == nullptr) {
    return {true, true};
  }
  const auto has_ended = [row](StreamMask finite) { return (finite & ~row->ended) == 0; };
  return {has_ended(finite_into_node_.at(static_cast<std::size_t>(consumer))),
          has_ended(finite_into_partition_.at(static_cast<std::size_t>(consumer)))};
}

std::size_t StreamBufferTable::num_tensors() const {
  std::size_t num_tensors = 0;
  for (const Row& row : rows_) {
    for (const StreamBuffer& buffer : row.buffers) {
      num_tensors += buffer.num_tensors();
    }
  }
  return num_tensors;
}

}  // namespace rigel
