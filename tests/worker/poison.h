#pragma once

#include "engine/engine.h"
#include "model/language_model.h"
#include "tensor/copy.h"

namespace rigel::testing {

/// Fills the workspaces of the engine's language model with NaN, in stream order: what a step reads of them, it has written.
inline void poison_workspaces(Engine& engine) {
  const auto& model = dynamic_cast<const LanguageModel&>(engine.submodule());
  const TransformerBuffers& buffers = model.buffers();
  for (const DeviceBuffer* buffer :
       {&buffers.ids, &buffers.angles, &buffers.residual, &buffers.normed, &buffers.qkv,
        &buffers.attention, &buffers.decode_workspace, &buffers.gate_up, &buffers.gated,
        &buffers.head_residual, &buffers.head_normed, &buffers.logits}) {
    fill_bytes(engine.stream(), buffer->view(Dtype::kU8, {buffer->num_bytes()}), 0xFF);
  }
}

}  // namespace rigel::testing
