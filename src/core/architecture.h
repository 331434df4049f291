// Which instruction sets a processor has: compiled kernels run where those of the machine they were made on are.
#pragma once

#include <string>
#include <string_view>

namespace ak {

/// The machine (`x86_64`, `aarch64`) and its instruction sets that a compiler uses, sorted and separated by spaces, from the text of
/// /proc/cpuinfo.
std::string architecture_from(std::string_view machine, std::string_view cpuinfo);

/// architecture_from() of the machine that this runs on.
std::string host_architecture();

/// What of `needed` is not in `present`, separated by spaces; empty where code made for the one runs on the other.
std::string missing_instructions(std::string_view needed, std::string_view present);

}  // namespace ak
