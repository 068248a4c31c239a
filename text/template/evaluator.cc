#include "text/template/evaluator.h"

#include "text/template/operations.h"
#include "text/template/template_error.h"

#include <fmt/core.h>

#include <algorithm>

namespace rigel::text::chat {
namespace {

constexpr std::size_t kMaxOutputBytes = std::size_t{256} << 20;

}  // namespace

const Value* Scope::find(NameId name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    for (const auto& [id, value] : scope->variables) {
      if (id == name) {
        return &value;
      }
    }
  }
  return nullptr;
}

void Scope::set(NameId name, Value value) {
  const auto place = std::find_if(variables.begin(), variables.end(),
                                  [name](const auto& v) { return v.first == name; });
  if (place != variables.end()) {
    place->second = std::move(value);
  } else {
    variables.emplace_back(name, std::move(value));
  }
}

/// A scope inside the current one (or inside `outer`) for as long as this object lives.
class Evaluator::NewScope {
 public:
  explicit NewScope(Evaluator& evaluator) : NewScope(evaluator, evaluator.scope_) {}
  NewScope(Evaluator& evaluator, std::shared_ptr<Scope> outer)
      : evaluator_(evaluator), before_(std::move(evaluator.scope_)) {
    evaluator_.scope_ = std::make_shared<Scope>(Scope{std::move(outer), {}});
  }
  ~NewScope() { evaluator_.scope_ = std::move(before_); }
  NewScope(const NewScope&) = delete;
  NewScope& operator=(const NewScope&) = delete;

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> before_;
};

Evaluator::Evaluator(const Template& source, const Dictionary& globals, const Dictionary& variables)
    : source_(source), scope_(std::make_shared<Scope>()) {
  for (std::size_t i = 0; i < source.names.size(); ++i) {
    const std::string_view name = source.names[i];
    const Value* value = variables.find(name);
    value = value != nullptr ? value : globals.find(name);
    if (value != nullptr) {
      scope_->set(static_cast<NameId>(i), *value);
    }
    if (name == "loop") {
      loop_name_ = static_cast<NameId>(i);
    }
  }
}

Evaluator::~Evaluator() {
  for (const auto& scope : macro_homes_) {
    scope->variables.clear();
  }
  for (const auto& space : namespaces_) {
    space->attributes = {};
  }
  for (const auto& loop : kept_loops_) {
    loop->items.clear();
  }
  for (const auto& method : bound_methods_) {
    static_cast<Callable*>(method.get())->function = nullptr;
  }
}

std::string Evaluator::render() {
  std::string out;
  try {
    execute(source_.body, out);
  } catch (const TemplateError&) {
    throw;
  } catch (const TextError& error) {
    throw TemplateError::at(line_, error.what());
  }
  return out;
}

Value Evaluator::make_namespace(const Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  namespaces_.push_back(space);
  for (const Value& given : arguments.positional) {
    if (!given.is(Value::Kind::kDictionary)) {
      throw TextError("namespace() takes dictionaries and named values");
    }
    for (const auto& [key, value] : given.as_dictionary().entries()) {
      space->attributes.set(key, value);
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    space->attributes.set(Value::string(name), value);
  }
  return Value::object(Value::Kind::kNamespace, std::move(space));
}

/// One statement: an overload a kind.
struct Evaluator::Executor {
  Evaluator& self;
  std::string& out;

  Flow operator()(const Text& text) const {
    self.append(text.text, out);
    return Flow::kNormal;
  }

  Flow operator()(const Output& output) const {
    self.append(to_text(self.evaluate(*output.value)), out);
    return Flow::kNormal;
  }

  Flow operator()(const If& statement) const {
    for (const If::Branch& branch : statement.branches) {
      if (self.evaluate(*branch.condition).is_true()) {
        return self.execute(branch.body, out);
      }
    }
    return self.execute(statement.otherwise, out);
  }

  Flow operator()(const For& statement) const {
    auto loop = std::make_shared<Loop>();
    loop->items = iterate(self.evaluate(*statement.iterable));
    if (statement.filter != nullptr) {
      keep_matching(statement, loop->items);
    }
    if (loop->items.empty()) {
      const NewScope scope(self);
      return self.execute(statement.otherwise, out);
    }
    loop->depth = ++self.loop_depth_;
    for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
      const NewScope scope(self);
      if (self.loop_name_ >= 0) {
        self.scope_->set(self.loop_name_, Value::object(Value::Kind::kLoop, loop));
      }
      self.assign(statement.target, loop->items[loop->index]);
      if (self.execute(statement.body, out) == Flow::kBreak) {
        break;
      }
    }
    --self.loop_depth_;
    if (loop.use_count() > 1) {
      self.kept_loops_.push_back(loop);
    }
    return Flow::kNormal;
  }

  void keep_matching(const For& statement, ValueList& items) const {
    ValueList kept;
    for (const Value& item : items) {
      const NewScope scope(self);
      self.assign(statement.target, item);
      if (self.evaluate(*statement.filter).is_true()) {
        kept.push_back(item);
      }
    }
    items = std::move(kept);
  }

  Flow operator()(const Set& set) const {
    self.assign(set.target, self.evaluate(*set.value));
    return Flow::kNormal;
  }

  Flow operator()(const SetBlock& set) const {
    std::string text = self.capture(set.body);
    self.assign(set.target, set.filters != nullptr
                                ? self.apply_filters(*set.filters, std::move(text))
                                : Value::string(std::move(text)));
    return Flow::kNormal;
  }

  Flow operator()(const Macro& macro) const {
    self.scope_->set(macro.name, self.make_macro(macro));
    return Flow::kNormal;
  }

  Flow operator()(const FilterBlock& block) const {
    self.append(to_text(self.apply_filters(*block.filters, self.capture(block.body))), out);
    return Flow::kNormal;
  }

  Flow operator()(const Generation& block) const {
    self.append(self.capture(block.body), out);
    return Flow::kNormal;
  }

  Flow operator()(const Break&) const { return Flow::kBreak; }
  Flow operator()(const Continue&) const { return Flow::kContinue; }
};

void Evaluator::enter() {
  if (++depth_ > kMaxDepth) {
    throw TextError("maximum recursion depth exceeded");
  }
}

Evaluator::Flow Evaluator::execute(const Block& block, std::string& out) {
  enter();
  Flow flow = Flow::kNormal;
  for (const Statement& statement : block) {
    line_ = statement.line;
    flow = std::visit(Executor{*this, out}, statement.node);
    if (flow != Flow::kNormal) {
      break;
    }
  }
  leave();
  return flow;
}

/// The text of a block with variables of its own.
std::string Evaluator::capture(const Block& block) {
  const NewScope scope(*this);
  std::string text;
  execute(block, text);
  return text;
}

void Evaluator::append(std::string_view text, std::string& out) const {
  if (text.size() > kMaxOutputBytes - std::min(out.size(), kMaxOutputBytes)) {
    throw TextError(fmt::format("the text has more than {} bytes", kMaxOutputBytes));
  }
  out += text;
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* space = scope_->find(target.name);
    if (space == nullptr || !space->is(Value::Kind::kNamespace)) {
      throw TextError("cannot assign attribute on non-namespace object");
    }
    static_cast<Namespace*>(space->as_object())
        ->attributes.set(Value::string(target.attribute), value);
    return;
  }
  if (target.elements.empty()) {
    scope_->set(target.name, value);
    return;
  }
  const ValueList parts = iterate(value);
  if (parts.size() != target.elements.size()) {
    throw TextError(
        fmt::format("expected {} values to unpack, got {}", target.elements.size(), parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    assign(target.elements[i], parts[i]);
  }
}

Value Evaluator::make_macro(const Macro& macro) {
  macro_homes_.push_back(scope_);
  return make_callable([this, &macro, home = scope_](const Arguments& arguments) {
    return call_macro(macro, home, arguments);
  });
}

Value Evaluator::call_macro(const Macro& macro, const std::shared_ptr<Scope>& home,
                            const Arguments& arguments) {
  if (macro_depth_ >= kMaxMacroDepth) {
    throw TextError(
        fmt::format("maximum recursion depth exceeded: macros call each other more than {} deep",
                    kMaxMacroDepth));
  }
  const std::size_t num_parameters = macro.parameters.size();
  if (arguments.positional.size() > num_parameters) {
    throw TextError(
        fmt::format("macro '{}' takes not more than {} argument(s)", macro.text, num_parameters));
  }
  for (const auto& [name, value] : arguments.keywords) {
    const bool is_known =
        std::any_of(macro.parameters.begin(), macro.parameters.end(),
                    [&name](const Macro::Parameter& p) { return p.text == name; });
    if (!is_known) {
      throw TextError(fmt::format("macro '{}' takes no keyword argument '{}'", macro.text, name));
    }
  }
  ++macro_depth_;
  const NewScope scope(*this, home);
  for (std::size_t i = 0; i < num_parameters; ++i) {
    const Macro::Parameter& parameter = macro.parameters[i];
    const auto keyword =
        std::find_if(arguments.keywords.begin(), arguments.keywords.end(),
                     [&parameter](const auto& k) { return k.first == parameter.text; });
    Value value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (keyword != arguments.keywords.end()) {
      value = keyword->second;
    } else if (parameter.default_value != nullptr) {
      value = evaluate(*parameter.default_value);
    } else {
      value = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.text));
    }
    scope_->set(parameter.name, std::move(value));
  }
  std::string text;
  execute(macro.body, text);
  --macro_depth_;
  return Value::string(std::move(text));
}

Value Evaluator::apply_filters(const Expression& filters, std::string text) {
  const Value outside = std::exchange(block_text_, Value::string(std::move(text)));
  const Value filtered = evaluate(filters);
  block_text_ = outside;
  return filtered;
}

}  // namespace rigel::text::chat
