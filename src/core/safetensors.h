// The safetensors layout: 8 bytes little-endian header length, a JSON header, data. Readers map the file and check all of it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace ak {

/// A tensor of a mapped file: valid as long as the file object.
struct TensorView {
  Dtype dtype = Dtype::float32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

/// A read-only, memory-mapped safetensors file.
class SafetensorsFile {
 public:
  /// errors: not readable; a header or an offset that does not fit the file.
  static SafetensorsFile open(const std::filesystem::path& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  bool has(const std::string& name) const { return tensors_.count(name) != 0; }
  /// errors: no such tensor.
  const TensorView& tensor(const std::string& name) const;
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  /// errors: no such key.
  const std::string& metadata(const std::string& key) const;
  bool has_metadata(const std::string& key) const { return metadata_.count(key) != 0; }

 private:
  SafetensorsFile() = default;
  void parse(const std::filesystem::path& path);

  std::span<const std::byte> mapping_;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  Dtype dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};
/// errors: cannot be written.
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace ak
