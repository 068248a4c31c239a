// The half of the evaluator that computes values.
#include "text/template/evaluator.h"
#include "text/template/methods.h"
#include "text/template/operations.h"
#include "text/text_error.h"

#include <fmt/core.h>

namespace rigel::text::chat {

/// One expression: an overload a kind.
struct Evaluator::Reader {
  Evaluator& self;

  Value operator()(const Constant& constant) const { return constant.value; }

  Value operator()(const Variable& variable) const {
    const Value* value = self.scope_->find(variable.name);
    return value != nullptr ? *value
                            : Value::undefined(fmt::format("'{}' is undefined", variable.text));
  }

  Value operator()(const ListLiteral& literal) const {
    ValueList items;
    items.reserve(literal.items.size());
    for (const ExpressionPtr& item : literal.items) {
      items.push_back(self.evaluate(*item));
    }
    return Value::list(std::move(items),
                       literal.is_tuple ? Value::Kind::kTuple : Value::Kind::kList);
  }

  Value operator()(const DictionaryLiteral& literal) const {
    Dictionary entries;
    for (const auto& [key, item] : literal.entries) {
      Value key_value = self.evaluate(*key);
      if (key_value.is(Value::Kind::kList) || key_value.is(Value::Kind::kDictionary)) {
        throw TextError(fmt::format("unhashable type: '{}'", type_name(key_value)));
      }
      entries.set(std::move(key_value), self.evaluate(*item));
    }
    return Value::dictionary(std::move(entries));
  }

  Value operator()(const AttributeAccess& access) const {
    return self.keep_method(get_attribute(self.evaluate(*access.object), access.name));
  }

  Value operator()(const ItemAccess& access) const {
    const Value object = self.evaluate(*access.object);
    return self.keep_method(get_item(object, self.evaluate(*access.key)));
  }

  Value operator()(const SliceAccess& access) const {
    const Value object = self.evaluate(*access.object);
    return get_slice(object, self.evaluate_or_none(access.begin), self.evaluate_or_none(access.end),
                     self.evaluate_or_none(access.step));
  }

  Value operator()(const Call& call) const {
    // A method is called straight away instead of being bound to its object first.
    if (const auto* access = std::get_if<AttributeAccess>(&call.callee->node)) {
      const Value object = self.evaluate(*access->object);
      if (has_method(object, access->name)) {
        return call_method(object, access->name, self.evaluate(call.arguments));
      }
      return self.call(get_attribute(object, access->name), self.evaluate(call.arguments));
    }
    const Value callee = self.evaluate(*call.callee);
    return self.call(callee, self.evaluate(call.arguments));
  }

  Value operator()(const FilterCall& filter) const {
    const Value input = filter.input != nullptr ? self.evaluate(*filter.input) : self.block_text_;
    return filter.function(input, self.evaluate(filter.arguments));
  }

  Value operator()(const TestCall& test) const {
    const Value input = self.evaluate(*test.input);
    return Value::boolean(test.function(input, self.evaluate(test.arguments)));
  }

  Value operator()(const Not& expression) const {
    return Value::boolean(!self.evaluate(*expression.operand).is_true());
  }

  Value operator()(const Negation& expression) const {
    return negate(self.evaluate(*expression.operand), expression.is_plus);
  }

  Value operator()(const Binary& binary) const {
    const Value left = self.evaluate(*binary.left);
    return apply(binary.op, left, self.evaluate(*binary.right));
  }

  Value operator()(const Logical& logical) const {
    Value left = self.evaluate(*logical.left);
    return left.is_true() == logical.is_and ? self.evaluate(*logical.right) : left;
  }

  Value operator()(const Comparison& comparison) const {
    Value left = self.evaluate(*comparison.first);
    for (const auto& [relation, operand] : comparison.rest) {
      Value right = self.evaluate(*operand);
      if (!compare(relation, left, right)) {
        return Value::boolean(false);
      }
      left = std::move(right);
    }
    return Value::boolean(true);
  }

  Value operator()(const Conditional& conditional) const {
    if (self.evaluate(*conditional.condition).is_true()) {
      return self.evaluate(*conditional.then);
    }
    return conditional.otherwise != nullptr ? self.evaluate(*conditional.otherwise)
                                            : Value::undefined(
                                                  "the inline if-expression evaluated to false and "
                                                  "no else section was defined.");
  }
};

Value Evaluator::evaluate(const Expression& expression) {
  enter();
  line_ = expression.line;
  Value value = std::visit(Reader{*this}, expression.node);
  leave();
  return value;
}

Value Evaluator::evaluate_or_none(const ExpressionPtr& expression) {
  return expression != nullptr ? evaluate(*expression) : Value::none();
}

Arguments Evaluator::evaluate(const ArgumentList& list) {
  Arguments arguments;
  arguments.positional.reserve(list.positional.size());
  for (const ExpressionPtr& argument : list.positional) {
    arguments.positional.push_back(evaluate(*argument));
  }
  for (const auto& [name, argument] : list.keywords) {
    arguments.keywords.emplace_back(name, evaluate(*argument));
  }
  return arguments;
}

/// Remembers a method that has just been bound to its object.
Value Evaluator::keep_method(Value value) {
  if (value.is(Value::Kind::kCallable)) {
    bound_methods_.push_back(value.share_object());
  }
  return value;
}

Value Evaluator::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) {
    throw TextError(callee.as_string());
  }
  if (!callee.is(Value::Kind::kCallable)) {
    throw TextError(fmt::format("'{}' object is not callable", type_name(callee)));
  }
  // Keeps the callable alive while it runs: a macro may give its own name another value.
  const std::shared_ptr<Value::Object> object = callee.share_object();
  return static_cast<Callable*>(object.get())->function(arguments);
}

}  // namespace rigel::text::chat
