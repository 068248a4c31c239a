#pragma once

#include "text/template/arguments.h"
#include "text/value.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

/// Things that exist in a running template only. Thread: that of the render.
namespace rigel::text::chat {

/// namespace(...): the one thing a template can change.
struct Namespace : Value::Object {
  Dictionary attributes;
};

/// The variable `loop`.
struct Loop : Value::Object {
  ValueList items;
  std::size_t index = 0;  // from 0
  int depth = 1;
};

/// Something a template can call: a macro, a function of the language, a method bound to its object.
struct Callable : Value::Object {
  using Function = std::function<Value(const Arguments&)>;

  explicit Callable(Function f) : function(std::move(f)) {}

  Function function;
};

inline Value make_callable(Callable::Function function) {
  return Value::object(Value::Kind::kCallable, std::make_shared<Callable>(std::move(function)));
}

/// loop.first and the like; undefined if there is no such member.
Value get_loop_member(const Loop& loop, std::string_view name);

}  // namespace rigel::text::chat
