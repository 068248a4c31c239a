#pragma once

#include "text/template/arguments.h"
#include "text/value.h"

/// The filters on lists and dictionaries, as Jinja2's manual describes them. All throw TextError on wrong
/// arguments. Thread: any.
namespace rigel::text::chat::filters {

Value first(const Value& input, const Arguments& arguments);
Value last(const Value& input, const Arguments& arguments);
Value length(const Value& input, const Arguments& arguments);
Value list(const Value& input, const Arguments& arguments);
Value items(const Value& input, const Arguments& arguments);
Value join(const Value& input, const Arguments& arguments);
Value reverse(const Value& input, const Arguments& arguments);
Value sum(const Value& input, const Arguments& arguments);
Value min(const Value& input, const Arguments& arguments);
Value max(const Value& input, const Arguments& arguments);
Value sort(const Value& input, const Arguments& arguments);
Value sort_dictionary(const Value& input, const Arguments& arguments);
Value unique(const Value& input, const Arguments& arguments);
Value map(const Value& input, const Arguments& arguments);
Value select(const Value& input, const Arguments& arguments);
Value reject(const Value& input, const Arguments& arguments);
Value select_by_attribute(const Value& input, const Arguments& arguments);
Value reject_by_attribute(const Value& input, const Arguments& arguments);

}  // namespace rigel::text::chat::filters
