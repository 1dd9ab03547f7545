// Line charts as SVG.
//
// They show exact values under the mouse. Points that cannot be drawn (not finite, or not above 0 on a logarithmic
// axis) leave a gap in their line. Any number of points: each column of pixels keeps its lowest and its highest.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/observe/draw/svg.h"

namespace trireme {

struct PlotAxis {
  std::string label;
  Scale scale = Scale::kLinear;
  std::optional<double> min, max;  ///< from the data where not given
};

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;
  bool dashed = false;  ///< a prediction: dashed, without markers
  int color = -1;       ///< number in the palette, so that a prediction can look like its measurement; -1: the next
  bool in_legend = true;
  bool faint = false;  ///< background of a smoothed line of the same colour: thin, pale, silent under the mouse
};

struct Chart {
  std::string title;
  std::string subtitle;
  PlotAxis x, y;
  std::vector<Series> series;
  int width = 880, height = 440;
};

/// An <svg> element, also good as a file of its own.
std::string to_svg(const Chart& chart);

}  // namespace trireme
