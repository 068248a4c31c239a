#pragma once

#include "text/template/arguments.h"
#include "text/template/objects.h"
#include "text/template/syntax.h"

#include <memory>
#include <string>
#include <vector>

namespace rigel::text::chat {

/// The variables of one block; what it does not hold, the one outside may.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<NameId, Value>> variables;

  const Value* find(NameId name) const;
  void set(NameId name, Value value);
};

/// One render of a template.
///
/// Scopes are Jinja2's: `for`, `macro`, and blocks whose text is caught have their own, `if` has not; a macro
/// sees the variables of where it stands. Throws TemplateError; output beyond 256 MiB, macros that call each
/// other more than kMaxMacroDepth deep are errors, too. Thread: one owner, one render.
class Evaluator {
 public:
  static constexpr int kMaxMacroDepth = 100;
  static constexpr int kMaxDepth =
      1000;  // of expressions and statements inside each other, macros included

  /// `globals`: the functions of the language; `variables`: what the conversation gives, which hides them.
  Evaluator(const Template& source, const Dictionary& globals, const Dictionary& variables);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  std::string render();

  /// namespace(...), kept until the render is over: it may hold itself.
  Value make_namespace(const Arguments& arguments);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class NewScope;
  struct Executor;
  struct Reader;
  friend struct Executor;
  friend struct Reader;

  Flow execute(const Block& block, std::string& out);
  void enter();
  void leave() { --depth_; }
  std::string capture(const Block& block);
  void append(std::string_view text, std::string& out) const;
  void assign(const Target& target, const Value& value);
  Value make_macro(const Macro& macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& home,
                   const Arguments& arguments);

  Value evaluate(const Expression& expression);
  Value evaluate_or_none(const ExpressionPtr& expression);
  Arguments evaluate(const ArgumentList& list);
  Value call(const Value& callee, const Arguments& arguments);
  Value keep_method(Value value);

  /// The input of a filter without one: the text of the block around it.
  Value apply_filters(const Expression& filters, std::string text);

  const Template& source_;
  NameId loop_name_ = -1;
  std::shared_ptr<Scope> scope_;
  // What may hold each other in cycles or long chains. Emptied one by one at the end, so that neither leaks and
  // no chain is freed by recursion.
  std::vector<std::shared_ptr<Scope>> macro_homes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Loop>> kept_loops_;
  std::vector<std::shared_ptr<Value::Object>> bound_methods_;
  Value block_text_;
  int line_ = 0;
  int macro_depth_ = 0;
  int depth_ = 0;  // an error ends the render, so nothing restores the depths then
  int loop_depth_ = 0;
};

}  // namespace rigel::text::chat
