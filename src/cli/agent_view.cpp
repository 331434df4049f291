// The words for bubblewrap.
#include "cli/agent_view.h"

#include <cstdlib>

#include "core/error.h"
#include "core/file.h"

namespace ak::cli {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// To find names, certificates, libraries and the time; nothing that is a secret.
constexpr const char* etc_files[] = {"/etc/resolv.conf", "/etc/hosts",           "/etc/nsswitch.conf", "/etc/ssl",
                                     "/etc/pki",         "/etc/ca-certificates", "/etc/passwd",        "/etc/group",
                                     "/etc/localtime",   "/etc/gai.conf",        "/etc/alternatives",  "/etc/ld.so.cache",
                                     "/etc/ld.so.conf",  "/etc/ld.so.conf.d",    "/etc/host.conf"};
constexpr int64_t largest_file_bytes = int64_t{1} << 30;

fs::path bubblewrap() {
  const auto program = find_program("bwrap");
  if (!program) throw Error("a coding agent is confined by bubblewrap, which is not installed", "install it: apt-get install bubblewrap");
  return *program;
}

void add(std::vector<std::string>& words, std::initializer_list<std::string> more) { words.insert(words.end(), more); }

/// /usr, and what of the root is a part of it or lies beside it.
void add_system(std::vector<std::string>& words) {
  add(words, {"--ro-bind", "/usr", "/usr"});
  for (const char* name : {"/bin", "/sbin", "/lib", "/lib32", "/lib64"}) {
    if (fs::is_symlink(name)) {
      add(words, {"--symlink", fs::read_symlink(name).string(), name});
    } else if (fs::exists(name)) {
      add(words, {"--ro-bind", name, name});
    }
  }
  for (const char* name : etc_files) add(words, {"--ro-bind-try", name, name});
  add(words, {"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"});
}

std::string home() {
  const char* named = std::getenv("HOME");
  return named == nullptr || *named == '\0' ? "/tmp" : named;
}

}  // namespace

ProcessOptions confined(const std::vector<std::string>& words, const View& view) {
  std::vector<std::string> line = {bubblewrap().string(), "--die-with-parent", "--new-session",       "--unshare-pid",
                                   "--unshare-ipc",       "--unshare-uts",     "--unshare-cgroup-try"};
  add_system(line);
  add(line, {"--tmpfs", home()});
  for (const fs::path& path : view.read_only) {
    if (!lies_within(path, "/usr")) add(line, {"--ro-bind-try", path.string(), path.string()});
  }
  for (const fs::path& path : view.read_write) add(line, {"--bind-try", path.string(), path.string()});
  const std::string program = std::string(View::programs) + "/autokernel";
  add(line, {"--ro-bind", executable_path().string(), program, "--bind", view.working_copy.string(), View::inside, "--chdir", View::inside,
             "--"});
  line.insert(line.end(), words.begin(), words.end());
  ProcessOptions options{.arguments = std::move(line), .environment = view.environment, .clear_environment = true};
  options.environment["HOME"] = home();
  options.environment["PATH"] =
      std::string(View::programs) + ":" + (std::getenv("PATH") == nullptr ? "/usr/bin:/bin" : std::getenv("PATH"));
  options.file_bytes = largest_file_bytes;
  return options;
}

void require_confinement() {
  const TemporaryDirectory directory("autokernel-view-");
  const CommandResult result = run_command(confined({"true"}, {.working_copy = directory.path()}), 10s);
  if (!result.status.success())
    throw Error("a coding agent cannot be confined here: bubblewrap ended with " + result.status.text() + ": " + result.output,
                "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1), or run as a user that may make them");
}

std::vector<fs::path> needed_to_start(const std::string& program) {
  const auto found = find_program(program);
  if (!found)
    throw Error("the agent's command " + program + " was not found", "install it, put its directory on PATH, or name it with its path");
  const fs::path place = fs::absolute(*found), real = fs::canonical(*found);
  std::vector<fs::path> paths = {place.parent_path(), real.parent_path()};
  for (fs::path directory = real; directory != directory.parent_path(); directory = directory.parent_path()) {
    if (directory.filename() == "node_modules" || directory.filename() == "versions") paths.push_back(directory);
  }
  return paths;
}

}  // namespace ak::cli
