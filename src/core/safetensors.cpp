// Mapping, checking and writing of safetensors files.
#include "core/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"

namespace ak {
namespace {

constexpr uint64_t maximum_header_bytes = 100'000'000;  // the format's own limit

uint64_t read_length(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

int64_t byte_count(Dtype dtype, const std::vector<int64_t>& shape) {
  int64_t bytes = size_bytes(dtype);
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) throw Error("a shape is negative or too large");
  }
  return bytes;
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) throw Error("cannot read " + path.string() + ": " + std::strerror(errno));
  const auto size = static_cast<size_t>(status.st_size);
  if (size < 8) throw Error(path.string() + " is too short to be a safetensors file");
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (address == MAP_FAILED) throw Error("cannot map " + path.string() + ": " + std::strerror(errno));
  SafetensorsFile file;
  file.mapping_ = {static_cast<const std::byte*>(address), size};
  file.parse(path);
  return file;
}

void SafetensorsFile::parse(const std::filesystem::path& path) {
  const uint64_t header_bytes = read_length(mapping_);
  if (header_bytes > maximum_header_bytes || header_bytes > mapping_.size() - 8)
    throw Error(path.string() + ": its header does not fit the file");
  const auto data = mapping_.subspan(8 + header_bytes);
  try {
    const char* text = reinterpret_cast<const char*>(mapping_.data()) + 8;
    const Json header = Json::parse(text, text + header_bytes);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        metadata_ = entry.get<std::map<std::string, std::string>>();
        continue;
      }
      TensorView view{parse_safetensors_dtype(entry.at("dtype").get<std::string>()), entry.at("shape").get<std::vector<int64_t>>(), {}};
      const auto begin = entry.at("data_offsets").at(0).get<uint64_t>(), end = entry.at("data_offsets").at(1).get<uint64_t>();
      if (begin > end || end > data.size() || static_cast<int64_t>(end - begin) != byte_count(view.dtype, view.shape)) {
        throw Error(path.string() + ": tensor '" + name + "' does not fit its offsets");
      }
      view.data = data.subspan(begin, end - begin);
      tensors_[name] = std::move(view);
    }
  } catch (const Json::exception& error) {
    throw Error(path.string() + ": its header is malformed: " + error.what());
  }
}

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept
    : mapping_(std::exchange(other.mapping_, {})), tensors_(std::move(other.tensors_)), metadata_(std::move(other.metadata_)) {}

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(tensors_, other.tensors_);
  std::swap(metadata_, other.metadata_);
  return *this;
}

SafetensorsFile::~SafetensorsFile() {
  if (!mapping_.empty()) ::munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
}

const TensorView& SafetensorsFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw Error("the file has no tensor '" + name + "'");
  return found->second;
}

const std::string& SafetensorsFile::metadata(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) throw Error("the file has no metadata '" + key + "'");
  return found->second;
}

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string data;
  for (const NamedTensor& tensor : tensors) {
    AK_CHECK(static_cast<int64_t>(tensor.data.size()) == byte_count(tensor.dtype, tensor.shape), "a tensor has the bytes of its shape");
    header[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {data.size(), data.size() + tensor.data.size()}}};
    data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  write_file(path, file + text + data);
}

}  // namespace ak
