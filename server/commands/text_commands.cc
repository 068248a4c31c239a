#include "model/model_files.h"
#include "server/api/json_writer.h"
#include "server/api/text_calls.h"
#include "server/commands/commands.h"
#include "server/commands/json_lines.h"
#include "server/model_codec.h"
#include "server/unknown_field_log.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>

namespace rigel::server {
namespace {

/// The text side of a model's files, whatever the model is.
ModelCodec open_codec(const std::string& path) {
  std::optional<text::TokenizerSpec> tokenizer = open_tokenizer(path);
  if (!tokenizer) {
    throw std::runtime_error(fmt::format("{} has no tokenizer", path));
  }
  return ModelCodec(std::move(tokenizer));
}

std::string ids_answer(const std::vector<std::int32_t>& ids) {
  JsonWriter json;
  json.begin_object().key("ids").begin_array();
  for (const std::int32_t id : ids) {
    json.value(id);
  }
  json.end_array().end_object();
  return json.take();
}

/// {"text", "pieces"}: a piece a token; what comes only at the end is in the text alone.
std::string pieces_answer(const std::vector<std::string>& pieces, std::size_t num_ids) {
  std::string text;
  JsonWriter json;
  json.begin_object().key("pieces").begin_array();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    text += pieces[i];
    if (i < num_ids) {
      json.value(pieces[i]);
    }
  }
  json.end_array().field("text", text).end_object();
  return json.take();
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path)) {
    throw std::runtime_error(fmt::format("--template {}: cannot be read", path));
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

Parsed<std::string> render_line(std::string_view line, const TemplateRenderer& renderer,
                                UnknownFieldLog& unknown_fields) {
  Parsed<RenderCall> call = parse_render_line(line);
  if (!call.ok()) {
    return std::move(call.error());
  }
  unknown_fields.note("--jsonl", call.value().unknown_fields);
  const RenderCall& asked = call.value();
  const RenderOverrides overrides{.bos_token = asked.bos_token,
                                  .eos_token = asked.eos_token,
                                  .now = asked.now,
                                  .messages_as_given = true};
  JsonWriter json;
  json.begin_object().field("rendered", renderer.render(asked.chat, overrides)).end_object();
  return json.take();
}

}  // namespace

int run_tokenize(const TextOptions& options) {
  const ModelCodec codec = open_codec(options.model);
  UnknownFieldLog unknown_fields;
  return answer_each_line(options.jsonl, [&](std::string_view line) -> Parsed<std::string> {
    Parsed<TokenizeCall> call = parse_tokenize_line(line);
    if (!call.ok()) {
      return std::move(call.error());
    }
    unknown_fields.note("--jsonl", call.value().unknown_fields);
    return ids_answer(codec.encode(std::get<std::string>(call.value().prompt),
                                   call.value().add_special, call.value().parse_special));
  });
}

int run_detokenize(const TextOptions& options) {
  const ModelCodec codec = open_codec(options.model);
  UnknownFieldLog unknown_fields;
  return answer_each_line(options.jsonl, [&](std::string_view line) -> Parsed<std::string> {
    Parsed<DetokenizeCall> call = parse_detokenize_line(line);
    if (!call.ok()) {
      return std::move(call.error());
    }
    unknown_fields.note("--jsonl", call.value().unknown_fields);
    const std::vector<std::int32_t>& ids = call.value().ids;
    return pieces_answer(codec.pieces(ids, call.value().skip_special), ids.size());
  });
}

int run_render(const RenderOptions& options) {
  UnknownFieldLog unknown_fields;
  if (!options.template_file.empty()) {
    const TemplateRenderer renderer(read_file(options.template_file), "", "");
    return answer_each_line(options.jsonl, [&](std::string_view line) {
      return render_line(line, renderer, unknown_fields);
    });
  }
  const ModelCodec codec = open_codec(options.model);
  if (codec.renderer() == nullptr) {
    throw std::runtime_error(fmt::format("{} has no chat template", options.model));
  }
  return answer_each_line(options.jsonl, [&](std::string_view line) {
    return render_line(line, *codec.renderer(), unknown_fields);
  });
}

}  // namespace rigel::server
