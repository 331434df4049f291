// Told apart by the name's ending.
#include "device/cuda/images.h"

#include "core/file.h"
#include "core/safetensors.h"

namespace ak::device::cuda {

std::vector<std::string> read_images(const std::filesystem::path& module) {
  if (module.extension() != ".triton") return {read_file(module)};
  const SafetensorsFile file = SafetensorsFile::open(module);
  std::vector<std::string> images;
  for (size_t i = 0; file.has("image" + std::to_string(i)); ++i) {
    const auto bytes = file.tensor("image" + std::to_string(i)).data;
    images.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return images;
}

}  // namespace ak::device::cuda
