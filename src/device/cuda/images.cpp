// Told apart by their first bytes.
#include "device/cuda/images.h"

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"

namespace ak::device::cuda {
namespace {

bool is_elf(std::string_view bytes) {
  constexpr size_t header_bytes = 64;
  return bytes.size() >= header_bytes && bytes.starts_with("\177ELF");
}

}  // namespace

std::vector<std::string> read_images(const std::filesystem::path& module) {
  if (std::string content = read_file(module); is_elf(content)) return {std::move(content)};
  if (module.extension() != ".triton") throw Error("the module is no cubin");
  std::vector<std::string> images;
  const SafetensorsFile file = SafetensorsFile::open(module);
  for (size_t i = 0; file.has("image" + std::to_string(i)); ++i) {
    const auto bytes = file.tensor("image" + std::to_string(i)).data;
    images.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!is_elf(images.back())) throw Error("the module holds what is no cubin");
  }
  return images;
}

}  // namespace ak::device::cuda
