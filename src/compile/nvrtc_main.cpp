// NVRTC by function pointers: its binary interface has been the same since CUDA 11.1.
#include "compile/nvrtc_main.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "core/confinement.h"
#include "core/error.h"
#include "core/file.h"

namespace ak::compile {
namespace {

namespace fs = std::filesystem;

using nvrtcProgram = struct nvrtcProgram_st*;

// name, parameters; each returns 0 for success
#define AK_NVRTC(X)                                                                                             \
  X(nvrtcVersion, (int*, int*))                                                                                 \
  X(nvrtcCreateProgram, (nvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))                                               \
  X(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*))                                                            \
  X(nvrtcGetProgramLog, (nvrtcProgram, char*))                                                                  \
  X(nvrtcGetCUBINSize, (nvrtcProgram, size_t*))                                                                 \
  X(nvrtcGetCUBIN, (nvrtcProgram, char*))

struct Nvrtc {
#define AK_NVRTC_MEMBER(name, parameters) int(*name) parameters = nullptr;
  AK_NVRTC(AK_NVRTC_MEMBER)
#undef AK_NVRTC_MEMBER
  const char* (*nvrtcGetErrorString)(int) = nullptr;

  explicit Nvrtc(const char* path) {
    void* library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw Error(::dlerror());
    const auto find = [&](const char* name) {
      void* function = ::dlsym(library, name);
      return function != nullptr ? function : throw Error(std::string(path) + " has no " + name);
    };
#define AK_NVRTC_FIND(name, parameters) name = reinterpret_cast<int(*) parameters>(find(#name));
    AK_NVRTC(AK_NVRTC_FIND)
#undef AK_NVRTC_FIND
    nvrtcGetErrorString = reinterpret_cast<const char* (*)(int)>(find("nvrtcGetErrorString"));
  }

  void check(int result, const char* what) const {
    if (result != 0) throw Error(std::string("NVRTC cannot ") + what + ": " + nvrtcGetErrorString(result));
  }
};

/// NVRTC opens its built-in functions and what they need when it first compiles, which is after confine().
void open_builtins(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) ::dlopen(entry.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

/// Read `readable`, write in the working directory, connect to nothing, start nothing. Returns what holds this, beside the limits that the
/// parent set.
std::string confine(std::span<const fs::path> readable) {
  std::vector<FileRule> rules = {{FileRule::Access::write, fs::current_path()}};
  for (const fs::path& directory : readable) rules.push_back({FileRule::Access::read, directory});
  const int version = restrict_files(rules);
  const bool calls = restrict_calls({.signals_scoped = version >= landlock_with_signals});
  return std::string(version > 0 ? "files " : "") + (calls ? "calls " : "") + "limits";
}

int version(const Nvrtc& nvrtc) {
  int major = 0, minor = 0;
  nvrtc.check(nvrtc.nvrtcVersion(&major, &minor), "tell its version");
  std::printf("NVRTC %d.%d\n%s\n", major, minor, confine({}).c_str());
  return 0;
}

struct Request {
  std::string library, architecture, output, file;
  std::vector<fs::path> includes;
  std::vector<std::string> options;

  explicit Request(std::span<char*> words) {
    const auto dashes = std::ranges::find(words, std::string("--"));
    if (words.size() < 5 || words.end() - dashes < 2 || dashes - words.begin() < 3)
      throw Error("--nvrtc takes LIBRARY ARCH OUT INCLUDE… -- OPTION… FILE");
    library = words[0];
    architecture = words[1];
    output = words[2];
    file = words.back();
    includes.assign(words.begin() + 3, dashes);
    options.assign(dashes + 1, words.end() - 1);
    options.push_back("--gpu-architecture=" + architecture);
    for (const fs::path& include : includes) options.push_back("--include-path=" + include.string());
  }
};

int compile(const Nvrtc& nvrtc, const Request& request) {
  open_builtins(fs::path(request.library).parent_path());
  confine(request.includes);
  nvrtcProgram program = nullptr;
  nvrtc.check(nvrtc.nvrtcCreateProgram(&program, read_file(request.file).c_str(), request.file.c_str(), 0, nullptr, nullptr),
              "read the file");
  std::vector<const char*> options;
  for (const std::string& option : request.options) options.push_back(option.c_str());
  const int result = nvrtc.nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  size_t bytes = 0;
  nvrtc.check(nvrtc.nvrtcGetProgramLogSize(program, &bytes), "give its messages");
  std::string log(bytes, '\0');
  nvrtc.check(nvrtc.nvrtcGetProgramLog(program, log.data()), "give its messages");
  std::fputs(log.c_str(), stderr);
  nvrtc.check(result, "compile the kernel");
  nvrtc.check(nvrtc.nvrtcGetCUBINSize(program, &bytes), "give the cubin");
  std::string cubin(bytes, '\0');
  nvrtc.check(nvrtc.nvrtcGetCUBIN(program, cubin.data()), "give the cubin");
  write_file(request.output, cubin);
  return 0;
}

}  // namespace

int nvrtc_main(int count, char** arguments) {
  const std::span<char*> words(arguments + 2, arguments + std::max(2, count));
  try {
    if (words.size() == 1) return version(Nvrtc(words[0]));
    const Request request(words);
    return compile(Nvrtc(request.library.c_str()), request);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}

}  // namespace ak::compile
