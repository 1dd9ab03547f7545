// What every picture is made of: SVG elements in one style, and the ticks of axes.
//
// A picture is one file that needs nothing else, and follows the reader's light or dark setting. All text is escaped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The rules for all classes named tr-…: "tr-c0" to "tr-c7" give a colour, the others say what has it.
extern const std::string_view kPictureStyle;
inline constexpr int kNumColours = 8;

/// An <svg> element that is built from back to front, also good as a file of its own.
class Svg {
 public:
  Svg(int width, int height, std::string_view name);
  void text(double x, double y, std::string_view classes, std::string_view text);
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  /// `path` is what an attribute "d" holds.
  void path(std::string_view path, std::string_view classes);
  void circle(double x, double y, double radius, std::string_view classes);
  /// `tip` stands under the mouse.
  void box(double x, double y, double width, double height, std::string_view fill, double opacity,
           std::string_view tip);
  /// What `draw` adds, as a group; it stands under the mouse as `tip` says, where that is not empty.
  template <typename Draw>
  void group(std::string_view classes, std::string_view tip, const Draw& draw) {
    begin_group(classes, tip);
    draw();
    out_ += "</g>\n";
  }
  /// The same, cut off at a rectangle.
  template <typename Draw>
  void clipped(double x, double y, double width, double height, const Draw& draw) {
    begin_clip(x, y, width, height);
    draw();
    out_ += "</svg>\n";
  }
  std::string finish() { return out_ + "</svg>\n"; }

 private:
  void begin_group(std::string_view classes, std::string_view tip);
  void begin_clip(double x, double y, double width, double height);

  std::string out_;
};

enum class Scale { kLinear, kLog };

struct Tick {
  double value;
  std::string label;
};
/// In [low, high], about `wanted` of them, ascending. On a logarithmic axis low is above 0.
std::vector<Tick> choose_ticks(double low, double high, Scale scale, int wanted);

/// What a reader wants to see of one value: 0.5, 10, 4,980, 1.2M.
std::string format_number(double value);

}  // namespace trireme
