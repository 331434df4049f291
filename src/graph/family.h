// A family of operators: kernels/<family>/family.toml (docs/formats/task.md).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/expression.h"
#include "kernel/task.h"

namespace ak::graph {

/// A tensor of the contract, before a spelling says whether it is there.
struct FamilyTensor {
  std::string name;
  kernel::Role role = kernel::Role::data;
  std::optional<Dtype> dtype;  // nothing: the task's
  std::vector<Expression> shape;
  std::optional<Expression> optional;  // absent where this is 0
  std::optional<Expression> factors;   // multiplied into the output where this is not 0
  std::optional<std::string> range, ignored;
  bool hides = false;
};

/// A way in which models write the operation.
struct Spelling {
  std::string function;
  std::map<std::string, std::vector<std::string>> labels;
  std::vector<std::string> scalars;
  std::map<std::string, int64_t> options;  // those that differ from the family's
};

struct Family {
  std::string name, summary;
  std::filesystem::path folder;
  std::vector<Dtype> dtypes;
  Expression flops, bytes;
  std::vector<FamilyTensor> tensors;
  std::map<std::string, kernel::Scalar> scalars;
  std::map<std::string, int64_t> options;
  std::vector<Spelling> spellings;
  std::vector<kernel::Binding> sweep, edges;
  std::vector<std::string> stability;
  double tolerance_k = 16;

  /// nullptr where there is none.
  const FamilyTensor* find_tensor(std::string_view tensor) const;
  /// Whether a contract with these options leaves the tensor out.
  bool is_absent(const FamilyTensor& tensor, const std::map<std::string, int64_t>& of_contract) const;
  /// Whether a contract with these options multiplies the tensor's values.
  bool has_factors(const FamilyTensor& tensor, const std::map<std::string, int64_t>& of_contract) const;

 private:
  int64_t evaluate(const Expression& expression, const std::map<std::string, int64_t>& of_contract) const;
};

using Families = std::map<std::string, Family, std::less<>>;

/// `origin` is the file's name for messages.
/// errors: bad TOML, an unknown, missing or malformed key, an unknown dim, option, tensor or dtype; with file and line.
Family parse_family(std::string_view text, const std::string& origin);
/// The families in the folders of `directory` that hold a family.toml.
/// errors: as above; no such directory; a folder that is not named as its family.
Families load_families(const std::filesystem::path& directory);

}  // namespace ak::graph
