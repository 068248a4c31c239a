#pragma once

#include "graphs/graph_runner.h"
#include "server/api/json_writer.h"

#include <vector>

namespace rigel::server {

/// Fields of an object: "graphs", the captured steps, and "launches", what each launch of a kind of them costs.
void write_graphs(JsonWriter& json, const std::vector<GraphManifest>& graphs);
/// The same as a table: launches by operation.
void print_graphs(const std::vector<GraphManifest>& graphs);

/// Field "block_graphs": the captured blocks between attentions, those of all layers together for each number of tokens.
void write_block_graphs(JsonWriter& json, const std::vector<GraphManifest>& graphs);
void print_block_graphs(const std::vector<GraphManifest>& graphs);

}  // namespace rigel::server
