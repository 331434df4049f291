// What a child that holds other people's code may still do, where it has to start programs, compile or import things.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ak {

/// What is allowed with a file, or with all below a directory.
struct FileRule {
  enum class Access { read, run, write } access = Access::read;  // each includes the ones before, but a written file is not run
  std::filesystem::path path;
};

/// 0 where there is none.
int landlock_version();

/// By Landlock: these files and no others, and where the kernel's Landlock is recent enough no TCP, no signals and no abstract sockets to
/// the outside. Returns its version; 0 where there is none.
/// errors: Landlock is there and refuses the rules.
int restrict_files(std::span<const FileRule> rules);

struct CallRules {
  bool programs = false;        // may start processes
  bool signals_scoped = false;  // restrict_files or a namespace keeps signals inside; else only those to itself are let through
  bool local_sockets = false;   // may listen on sockets of its own, as the CUDA driver does; still not connect
};

/// By seccomp: no network, no other process, namespace, mount, key or clock touched, nobody leaves the process group. What is refused
/// answers EPERM, as honest code copes with. False where there is no seccomp.
bool restrict_calls(const CallRules& rules);

/// From which version on Landlock lets files move between directories, and keeps signals inside.
constexpr int landlock_with_moves = 2, landlock_with_signals = 6;

}  // namespace ak
