// The TOML block of a kernel file: where it stands, and its keys turned into plans.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "core/json.h"
#include "core/toml.h"
#include "kernel/kernel_file.h"

namespace ak::kernel {

/// Reads the block into a KernelFile.
class FrontMatter {
 public:
  FrontMatter(const std::string& text, std::string origin);

  /// errors: see KernelFile::parse.
  void read_into(KernelFile& file);

 private:
  void locate();
  std::string where(const std::string& path) const;
  [[noreturn]] void fail(const std::string& path, const std::string& what) const;
  void check_keys(const Json& object, const std::string& path, std::initializer_list<std::string_view> known) const;
  const Json& required(const Json& object, const std::string& path, const std::string& key) const;
  std::string text_of(const Json& value, const std::string& path) const;
  Expression expression(const Json& value, const std::string& path) const;
  /// true, false, or an expression that is not zero where it holds.
  Expression flag(const Json& value, const std::string& path) const;
  std::vector<Expression> expressions(const Json& value, const std::string& path, size_t maximum) const;

  Tunable tunable(const std::string& name, const Json& value) const;
  void read_tunables(KernelFile& file) const;
  Launch launch(const Json& value, const std::string& path) const;
  std::vector<Launch> launches(const Json& parent, const std::string& path, const std::string& key) const;
  void read_scratch(KernelFile& file) const;
  void read_tensor_maps(KernelFile& file) const;
  void read_variants(KernelFile& file) const;
  void read_recipes(KernelFile& file) const;
  void check_backend(const KernelFile& file, const std::vector<Launch>& launches) const;
  Point prior_point(const KernelFile& file, const Json& value, const std::string& path) const;
  void read_priors(KernelFile& file) const;

  const std::string& text_;
  std::string origin_;
  size_t block_begin_ = 0, block_end_ = 0;  // of the TOML in the file
  int64_t first_line_ = 1;
  Json root_;
  std::map<std::string, TomlSpan> spans_;
};

}  // namespace ak::kernel
