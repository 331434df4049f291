// A coding agent as a command: words with placeholders, and what the common ones need to work without a person.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ak::search {

/// What a command line of an agent is made of.
struct AgentCommand {
  std::string name;                          // of the program: "claude"
  std::vector<std::string> words;            // with placeholders
  std::vector<std::string> home_paths;       // its own settings and credentials, below the home directory
  std::vector<std::string> variable_starts;  // environment variables that it may see begin with one of these
};

/// A preset ("claude", "codex", "gemini"), or a template such as `claude -p {prompt}`, split into words as a shell would, with no shell in
/// between. Placeholders: {prompt}, {prompt_file}, {workdir}.
/// errors: no word, an open quote, an unknown placeholder, neither {prompt} nor {prompt_file}.
AgentCommand parse_agent_command(std::string_view text);

/// The words with their placeholders filled in.
std::vector<std::string> filled_in(const AgentCommand& command, const std::map<std::string, std::string>& values);

}  // namespace ak::search
