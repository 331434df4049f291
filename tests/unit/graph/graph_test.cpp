// graph.json and patterns.json: what is read, what is refused.
#include "graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "builders.h"

namespace ak::graph {
namespace {

using ::testing::HasSubstr;

TEST(Graph, ReadsNodesUsersAndConstants) {
  GraphBuilder builder;
  builder.placeholder("x", {2, 3});
  builder.parameter("w", {4, 3});
  builder.op("t", "transpose.int", {{"self", at("w")}, {"dim0", -2}, {"dim1", -1}}, {3, 4}, {1, 3});
  builder.op("flat", "reshape.default", {{"self", at("w")}, {"shape", {12}}}, {12});
  builder.op("copied", "reshape.default", {{"self", at("t")}, {"shape", {12}}}, {12});
  builder.op("cat", "cat.default", {{"tensors", {at("x"), at("x")}}, {"dim", -1}}, {2, 6});
  builder.output({"cat", "flat"});
  const Graph graph = builder.graphs().at(0);
  EXPECT_EQ(graph.nodes[0].users, (std::vector<int64_t>{5}));
  EXPECT_EQ(graph.nodes[1].users, (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(graph.is_constant(1));
  EXPECT_TRUE(graph.is_constant(2));
  EXPECT_TRUE(graph.is_constant(3));
  EXPECT_FALSE(graph.is_constant(4)) << "a copy is made in every forward";
  EXPECT_FALSE(graph.is_constant(0));
  EXPECT_EQ(graph.nodes[2].tensor()->strides, (std::vector<int64_t>{1, 3}));
}

TEST(Graph, AParameterThatIsWrittenIsNoConstant) {
  GraphBuilder builder;
  builder.placeholder("counter", {3}, "buffer");
  builder.op("add_", "inplace:aten.add_.Tensor", {{"self", at("counter")}, {"other", 1}, {"alpha", 1}}, {3});
  builder.output({"counter"});
  EXPECT_FALSE(builder.graphs().at(0).is_constant(0));
}

TEST(Graph, SymbolsAndUnknownDtypesAreNoTensors) {
  GraphBuilder builder;
  builder.placeholder("x", {2, 3}, "input", "complex64");
  builder.nodes().push_back(Json::parse(R"({"name": "y", "op": "placeholder", "kind": "input", "out": [
    {"dtype": "float32", "shape": [{"symbol": "s0", "hint": 4}, 3], "strides": [3, 1]}]})"));
  builder.nodes().push_back(Json::parse(
      R"({"name": "size", "op": "aten.sym_size.int", "args": {"self": {"node": "y"}, "dim": -2}, "out": [{"symbol": "s0", "hint": 4}]})"));
  builder.nodes().push_back(Json::parse(R"({"name": "two", "op": "custom.two", "args": {}, "out": [
    {"dtype": "float32", "shape": [2], "strides": [1]}, {"dtype": "float32", "shape": [2], "strides": [1]}]})"));
  const Graph graph = builder.graphs().at(0);
  for (const Node& node : graph.nodes) EXPECT_EQ(node.tensor(), nullptr) << node.name;
}

TEST(Graph, NamesWhatIsMalformed) {
  const auto with_node = [](const char* node) {
    GraphBuilder builder;
    builder.placeholder("x", {2});
    builder.nodes().push_back(Json::parse(node));
    return error_of([&] { builder.graphs(); });
  };
  EXPECT_THAT(with_node(R"({"name": "a", "op": "aten.neg.default", "args": {"self": {"node": "b"}}})"),
              HasSubstr("graph g0, node a: reads 'b'"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "aten.neg.default", "args": {"self": {"input": "x"}}})"), HasSubstr("reads 'x'"));
  EXPECT_THAT(with_node(R"({"name": "x", "op": "aten.neg.default", "args": {}})"), HasSubstr("node x: the name is there twice"));
  EXPECT_THAT(with_node(R"({"name": "a", "args": {}})"), HasSubstr("malformed"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": 5})"), HasSubstr("malformed"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "o", "args": []})"), HasSubstr("args must be an object"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "o", "args": {"k": {"what": 1}}})"), HasSubstr("not a value"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "o", "args": {"k": {"float": "big"}}})"), HasSubstr("a float is"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "o", "out": [{"dtype": "float32", "shape": [-1], "strides": [1]}]})"),
              HasSubstr("negative"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "o", "out": [{"dtype": "float32", "shape": ["n"], "strides": [1]}]})"),
              HasSubstr("must be an integer"));
  EXPECT_THAT(with_node(R"({"name": "a", "op": "o", "out": ["tensor"]})"), HasSubstr("not an output"));
  EXPECT_THAT(
      with_node(
          R"({"name": "a", "op": "o", "out": [{"dtype": "float32", "shape": [4294967296, 4294967296], "strides": [4294967296, 1]}]})"),
      HasSubstr("more than 2^63 elements"));
  EXPECT_THAT(with_node(R"("a")"), HasSubstr("must be an object"));
  EXPECT_THAT(error_of([] { parse_graphs(Json::parse(R"({"schema": "autokernel.graph/2", "graphs": []})")); }),
              HasSubstr("not of the format"));
  EXPECT_THAT(error_of([] { parse_graphs(Json::parse(R"({"schema": "autokernel.graph/1"})")); }), HasSubstr("malformed"));
  EXPECT_THAT(error_of([] { parse_graphs(Json::parse(R"({"schema": 1})")); }), HasSubstr("malformed"));
  EXPECT_THAT(error_of([] { parse_graphs(Json::parse("[]")); }), HasSubstr("not of the format"));
}

TEST(Pattern, NamesWhatDoesNotFitTheFamily) {
  const Families families =
      family_of("twice", {{"x", "data", {"M", "N"}}, {"bias", "weight", {"N"}, "HAS_BIAS"}, {"out", "output", {"M", "N"}}},
                "[options]\nHAS_BIAS = 0\n[scalars]\neps = 0.5");
  const PatternText good{.family = "twice",
                         .inputs = {{"x", {"*M", "N"}}},
                         .nodes = {{"a", "mul.Tensor", {{"self", in("x")}, {"other", {{"scalar", "eps"}}}}}},
                         .outputs = {{"a", {"*M", "N"}}}};
  EXPECT_EQ(patterns_of({good}, families).size(), 1u);
  const auto broken = [&](auto&& change) {
    PatternText text = good;
    change(text);
    return error_of([&] { patterns_of({text}, families); });
  };
  EXPECT_THAT(broken([](auto& p) { p.family = "thrice"; }), HasSubstr("pattern thrice/s: there is no family of this name"));
  EXPECT_THAT(broken([](auto& p) { p.inputs[0].second = {"N", "*M"}; }), HasSubstr("labels of x: '*M' is not the first label"));
  EXPECT_THAT(broken([](auto& p) { p.inputs[0].second = {"*M", "K"}; }), HasSubstr("has no dim 'K' left"));
  EXPECT_THAT(broken([](auto& p) { p.inputs[0].second = {"N", "N"}; }), HasSubstr("has no dim 'N' left"));
  EXPECT_THAT(broken([](auto& p) { p.inputs.push_back({"y", {"N"}}); }), HasSubstr("the family has no tensor 'y'"));
  EXPECT_THAT(broken([](auto& p) { p.options = {{"HAS_BIAS", 1}}; }), HasSubstr("lacks the tensor 'bias', which its options ask for"));
  EXPECT_THAT(broken([](auto& p) {
                p.inputs.push_back({"bias", {"N"}});
              }),
              HasSubstr("has the tensor 'bias', which its options leave out"));
  EXPECT_THAT(broken([](auto& p) { p.nodes[0].args["other"] = {{"scalar", "scale"}}; }), HasSubstr("no scalar 'scale'"));
  EXPECT_THAT(broken([](auto& p) { p.nodes[0].args["self"] = at("b"); }), HasSubstr("reads 'b'"));
  EXPECT_THAT(broken([](auto& p) { p.nodes[0].args["self"] = 1; }), HasSubstr("no node reads the input 'x'"));
  EXPECT_THAT(broken([](auto& p) {
                p.nodes.push_back({"c", "neg.default", {{"self", at("a")}}});
              }),
              HasSubstr("the node 'c' leads to no output"));
  EXPECT_THAT(broken([](auto& p) { p.outputs[0].node = "z"; }), HasSubstr("made by no node"));
  EXPECT_THAT(broken([](auto& p) { p.outputs.clear(); }), HasSubstr("no outputs"));
  EXPECT_THAT(error_of([&] { parse_patterns(Json::parse(R"({"patterns": [{}]})"), families); }), HasSubstr("malformed"));
  EXPECT_THAT(error_of([&] { parse_patterns(Json::parse("{}"), families); }), HasSubstr("malformed"));
}

}  // namespace
}  // namespace ak::graph
