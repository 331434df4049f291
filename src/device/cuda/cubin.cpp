// The header of an ELF file, and what its tables need.
#include "device/cuda/cubin.h"

#include <elf.h>

#include <cstring>

#include "core/error.h"

namespace ak::device::cuda {
namespace {

constexpr int first_wide_version = 8;  // of the ABI: from then on the architecture is the flags' second byte, before their first

Elf64_Ehdr header_of(std::string_view image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image.data(), sizeof header);
  return header;
}

bool lies_within(uint64_t offset, uint64_t entry_bytes, uint64_t entries, size_t size) {
  return offset <= size && entry_bytes * entries <= size - offset;
}

}  // namespace

std::string fault_of(std::string_view image) {
  if (image.size() < sizeof(Elf64_Ehdr) || image.substr(0, SELFMAG) != ELFMAG) return "the module is no cubin";
  const Elf64_Ehdr header = header_of(image);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_CUDA) return "the module is code for something else than a GPU";
  // The tables come last, so a file that was cut off lacks a part of them.
  if (lies_within(header.e_phoff, header.e_phentsize, header.e_phnum, image.size()) &&
      lies_within(header.e_shoff, header.e_shentsize, header.e_shnum, image.size()))
    return {};
  return "the module is cut off: it ends after " + std::to_string(image.size()) + " bytes";
}

std::string architecture_of(std::string_view image) {
  const Elf64_Ehdr header = header_of(image);
  const bool wide = header.e_ident[EI_ABIVERSION] >= first_wide_version;
  return "sm_" + std::to_string(wide ? header.e_flags >> 8 & 0xff : header.e_flags & 0xff);
}

CUmodule load_module(std::string_view image, const Driver& from) {
  if (const std::string fault = fault_of(image); !fault.empty())
    throw Error(fault, "delete it: it is compiled again when it is next needed");
  CUmodule module = nullptr;
  const CUresult result = from.cuModuleLoadData(&module, image.data());
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
    throw Error("the module is for " + architecture_of(image) + ", which this GPU does not run", "compile it on this machine");
  check(result, "load a module", from);
  return module;
}

}  // namespace ak::device::cuda
