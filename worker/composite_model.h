#pragma once

#include "engine/engine.h"
#include "model/walk/program.h"
#include "tensor/stream.h"

#include <memory>
#include <vector>

namespace rigel {

/// A model of several nodes, ready to run: its dataflow and an engine for each node, which all use one stream.
struct CompositeModel {
  std::unique_ptr<Stream> stream;
  walk::Program program;
  std::vector<std::unique_ptr<Engine>> engines;  // by NodeId; as many as the program has nodes
};

}  // namespace rigel
