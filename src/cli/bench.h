// The loop by hand: one edited kernel file, one verdict.
#pragma once

#include <string>

#include "cli/session.h"

namespace ak::cli {

struct BenchRequest {
  std::string task, note, kernel_text, proposer = "hand";
  int64_t tune = 0;
};

/// Judge the text, keep or revert, record.
/// Returns what `bench --json` prints: task, experiment, verdict, evidence, timings, what changed.
/// errors: a kernel file with a bad plan (line and reason): nothing is recorded and the file stays as edited.
Json bench_kernel(Session& session, const BenchRequest& request);

/// The same for a person.
std::string bench_text(const Json& result);

/// Answers a request on the run's socket: bench, status, stop.
Json answer_client(Session& session, const Json& request);

}  // namespace ak::cli
