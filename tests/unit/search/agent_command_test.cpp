// Templates of agents' commands.
#include "search/agent_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace ak::search {
namespace {

using testing::ElementsAre;

TEST(AgentCommand, is_split_as_a_shell_would) {
  EXPECT_THAT(parse_agent_command(R"(my-agent  --say "a \"b\" {prompt}" 'it is $HOME' one\ word)").words,
              ElementsAre("my-agent", "--say", "a \"b\" {prompt}", "it is $HOME", "one word"));
}

TEST(AgentCommand, presets_are_commands_and_know_their_settings) {
  for (const char* name : {"claude", "codex", "gemini"}) {
    const AgentCommand command = parse_agent_command(name);
    EXPECT_EQ(command.words.front(), name);
    EXPECT_EQ(command.name, name);
    EXPECT_THAT(command.home_paths, testing::Contains("." + std::string(name)));
    EXPECT_THAT(command.words, testing::Contains("{prompt}"));
  }
  EXPECT_THAT(parse_agent_command("/opt/bin/claude -p {prompt}").variable_starts, testing::Contains("ANTHROPIC_"));
  EXPECT_TRUE(parse_agent_command("own {prompt}").variable_starts.empty());
}

TEST(AgentCommand, a_value_is_one_word_whatever_is_in_it) {
  const AgentCommand command = parse_agent_command("agent --in={workdir} {prompt} {\"json\": 1}");
  EXPECT_THAT(filled_in(command, {{"prompt", "a 'b' {workdir}"}, {"workdir", "/w"}}),
              ElementsAre("agent", "--in=/w", "a 'b' {workdir}", "{json:", "1}"));
}

TEST(AgentCommand, says_what_is_wrong) {
  const auto message = [](const char* text) {
    try {
      parse_agent_command(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(message("  "), testing::HasSubstr("empty"));
  EXPECT_THAT(message("agent 'x {prompt}"), testing::HasSubstr("open quote"));
  EXPECT_THAT(message("agent --model x"), testing::HasSubstr("where the instructions go"));
  EXPECT_THAT(message("agent {prompt} {model}"), testing::HasSubstr("{model}"));
}

}  // namespace
}  // namespace ak::search
