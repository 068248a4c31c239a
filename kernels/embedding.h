#pragma once

#include "tensor/launch.h"
#include "tensor/view.h"

namespace rigel::kernels {

/// Chooses the input ids of a step: ids that the host staged, or the token a row sampled last.
///   out_ids (T) i32    staged_ids (T) i32    token_rows (T) i32    last_token (R) i32
/// Padding (row -1) gives -1; a staged id >= 0 stands for itself; a staged id of -1 on a real row means last_token[row].
/// Pre: rows < R. out_ids may be staged_ids. Stream-ordered, capture-safe. Cost: 16 bytes a token.
void select_tokens(StreamRef stream, DeviceView out_ids, ConstDeviceView staged_ids,
                   ConstDeviceView token_rows, ConstDeviceView last_token);

/// Starts the residual stream: out[t] = scale * table[ids[t]].
///   out (T, C) f32    ids (T) i32    table (V, C) bf16 or f32
/// An id of -1 (padding), or one outside the table, gives zeros. Any C; 16-byte accesses where C and the addresses allow.
/// Stream-ordered, capture-safe. Cost: reads C elements of the table and writes 4 C bytes a token.
void embed(StreamRef stream, DeviceView out, ConstDeviceView ids, ConstDeviceView table,
           float scale);

}  // namespace rigel::kernels
