// Pictures of graphs: Graphviz text, and SVG with operators from top to bottom, a column a layer.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "trireme/base/index.h"
#include "trireme/base/text.h"
#include "trireme/observe/table.h"
#include "trireme/plan/graph.h"

namespace trireme {
namespace {

constexpr std::array<const char*, 8> kColours = {"#cfe2f3", "#fce5cd", "#d9ead3", "#f4cccc",
                                                 "#d9d2e9", "#fff2cc", "#d0e0e3", "#ead1dc"};

/// As the module has them: the weight of a linear layer is [outputs, inputs], and so are its placements.
std::string tensor_text(const GraphTensor& tensor) {
  std::vector<int64_t> sizes = tensor.sizes;
  if (tensor.transposed) std::reverse(sizes.begin(), sizes.end());
  return sizes_text(sizes);
}

/// What is drawn: of layers that do the same in one stage, the first, with their number.
struct Shown {
  std::vector<int> layers;                 ///< that are drawn, in order
  std::map<int, std::pair<int, int>> run;  ///< of each: first and last of those that it stands for
};

int stage_of(const GraphPicture& picture, int layer) {
  return picture.stage_of_layer.empty() ? 0 : picture.stage_of_layer[at(layer)];
}

Shown shown_layers(const Graph& graph, const GraphPicture& picture) {
  const Folding folding = fold_layers(graph, 1);
  Shown shown;
  for (int layer = 0; layer < graph.num_layers; ++layer) {
    const bool again = !shown.layers.empty() &&
                       folding.layer_class[at(layer)] == folding.layer_class[at(shown.layers.back())] &&
                       stage_of(picture, layer) == stage_of(picture, shown.layers.back());
    if (again) {
      shown.run[shown.layers.back()].second = layer;
    } else {
      shown.layers.push_back(layer);
      shown.run[layer] = {layer, layer};
    }
  }
  return shown;
}

std::string layer_title(const Graph& graph, const Shown& shown, const GraphPicture& picture, int layer) {
  const auto& [first, last] = shown.run.at(layer);
  std::string title = graph.layer_names[at(first)];
  if (last > first) title += fmt::format(" … {} ({} times)", graph.layer_names[at(last)], last - first + 1);
  if (!picture.stage_of_layer.empty()) title += fmt::format(", stage {}", stage_of(picture, layer));
  return title;
}

const char* colour_of(const GraphPicture& picture, int layer) {
  return kColours[at(stage_of(picture, layer)) % kColours.size()];
}

/// Weights that are cut over devices stand out.
bool is_cut(const std::string& placement) { return placement.find("shard") != std::string::npos; }

/// "weight [256, 64] [replicate, shard(0)]": the placement is that of the weight, not of what the operator makes.
std::string weight_text(const Graph& graph, const GraphOperator& op, const std::string& placement) {
  for (const int input : op.inputs) {
    const GraphTensor& tensor = graph.tensors[at(input)];
    if (tensor.is_parameter && !placement.empty()) return fmt::format("weight {} {}", tensor_text(tensor), placement);
  }
  return placement;
}

/// Where a tensor comes from, among operators that are drawn: a producer in a layer that is not stands behind the run.
int shown_producer(const Graph& graph, const std::vector<bool>& is_shown, int tensor) {
  const int producer = graph.tensors[at(tensor)].producer;
  if (producer < 0 || is_shown[at(producer)]) return producer;
  const std::string& name = graph.operators[at(producer)].name;
  for (int o = producer; o >= 0; --o) {
    if (is_shown[at(o)] && graph.operators[at(o)].name == name) return o;
  }
  return -1;
}

std::vector<bool> shown_operators(const Graph& graph, const Shown& shown) {
  std::vector<bool> is_shown;
  for (const GraphOperator& op : graph.operators) is_shown.push_back(shown.run.contains(op.layer));
  return is_shown;
}

}  // namespace

std::string graph_dot(const Graph& graph, const GraphPicture& picture) {
  const Shown shown = shown_layers(graph, picture);
  const std::vector<bool> is_shown = shown_operators(graph, shown);
  std::string text = "digraph model {\n  node [shape=box, style=filled, fontname=\"sans-serif\"];\n";
  for (const int layer : shown.layers) {
    text +=
        fmt::format("  subgraph cluster_{} {{\n    label=\"{}\";\n", layer, layer_title(graph, shown, picture, layer));
    for (size_t o = 0; o < graph.operators.size(); ++o) {
      const GraphOperator& op = graph.operators[o];
      if (op.layer != layer) continue;
      const std::string placement = o < picture.placement.size() ? picture.placement[o] : "";
      text += fmt::format("    o{} [label=\"{}{}{}\", fillcolor=\"{}\"];\n", o, op.name, placement.empty() ? "" : "\\n",
                          placement,
                          colour_of(picture, layer) + std::string(is_cut(placement) ? "\", color=\"#b45309" : ""));
    }
    text += "  }\n";
  }
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    if (!is_shown[o]) continue;
    for (const int input : graph.operators[o].inputs) {
      const GraphTensor& tensor = graph.tensors[at(input)];
      const int producer = shown_producer(graph, is_shown, input);
      if (producer >= 0) {
        text += fmt::format("  o{} -> o{} [label=\"{}\"];\n", producer, o, sizes_text(tensor.sizes));
      } else if (tensor.is_parameter) {
        text += fmt::format("  t{0} [label=\"{1}\\n{2}\", shape=ellipse, fillcolor=white];\n  t{0} -> o{3};\n", input,
                            tensor.name, tensor_text(tensor), o);
      }
    }
  }
  return text + "}\n";
}

std::string graph_svg(const Graph& graph, const GraphPicture& picture) {
  constexpr int kWidth = 380, kHeight = 34, kGap = 22, kMargin = 40, kColumn = 460;
  const Shown shown = shown_layers(graph, picture);
  const std::vector<bool> is_shown = shown_operators(graph, shown);
  std::map<int, int> column;
  for (size_t i = 0; i < shown.layers.size(); ++i) column[shown.layers[i]] = static_cast<int>(i);
  std::vector<int> rows(shown.layers.size(), 0);
  std::map<size_t, std::pair<int, int>> place;
  std::string boxes, lines;
  for (size_t o = 0; o < graph.operators.size(); ++o) {
    if (!is_shown[o]) continue;
    const GraphOperator& op = graph.operators[o];
    const int c = column[op.layer], row = rows[at(c)]++;
    const int x = kMargin + c * kColumn, y = 2 * kMargin + row * (kHeight + kGap);
    place[o] = {x, y};
    const std::string sizes = sizes_text(graph.tensors[at(op.outputs[0])].sizes);
    const std::string placement = o < picture.placement.size() ? picture.placement[o] : "";
    boxes += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" {}/>\n", x, y, kWidth,
                         kHeight, colour_of(picture, op.layer),
                         is_cut(placement) ? "stroke=\"#b45309\" stroke-width=\"2.5\"" : "stroke=\"#555\"");
    boxes +=
        fmt::format("<text x=\"{}\" y=\"{}\">{} {}</text>\n", x + 8, y + 14, escape_html(op.name), escape_html(sizes));
    boxes += fmt::format("<text x=\"{}\" y=\"{}\" fill=\"#333\">{}</text>\n", x + 8, y + 28,
                         escape_html(weight_text(graph, op, placement)));
    for (const int input : op.inputs) {
      const int producer = shown_producer(graph, is_shown, input);
      if (producer < 0 || !place.contains(at(producer))) continue;
      const auto [px, py] = place[at(producer)];
      const bool next = px == x && y - py == kHeight + kGap;
      const int bend = px == x ? -16 : (x - px) / 3;  // what jumps over operators goes beside them
      lines += next ? fmt::format("<path d=\"M{} {} V{}\"/>\n", x + kWidth / 2, py + kHeight, y)
               : px == x
                   ? fmt::format("<path d=\"M{0} {1} C{2} {1} {2} {3} {0} {3}\"/>\n", x, py + kHeight / 2, x + bend,
                                 y + kHeight / 2)
                   : fmt::format("<path d=\"M{} {} C{} {} {} {} {} {}\"/>\n", px + kWidth, py + kHeight / 2,
                                 px + kWidth + bend, py + kHeight / 2, x - bend, y + kHeight / 2, x, y + kHeight / 2);
    }
  }
  std::string titles;
  for (const int layer : shown.layers) {
    titles += fmt::format("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{}</text>\n", kMargin + column[layer] * kColumn,
                          2 * kMargin - 14, escape_html(layer_title(graph, shown, picture, layer)));
  }
  const int width = 2 * kMargin + static_cast<int>(shown.layers.size()) * kColumn;
  const int height = 3 * kMargin + *std::max_element(rows.begin(), rows.end()) * (kHeight + kGap);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      "<text x=\"{}\" y=\"28\" font-size=\"16\">{}: {} operators, {} layers</text>\n{}"
      "<g fill=\"none\" stroke=\"#888\">\n{}</g>\n{}</svg>\n",
      width, height, width, height, kMargin, escape_html(graph.name), graph.operators.size(), graph.num_layers, titles,
      lines, boxes);
}

}  // namespace trireme
