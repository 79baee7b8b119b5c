// Pictures: what to draw, and gnuplot to draw it as SVG.
#pragma once

#include <string>
#include <vector>

namespace octet::train {

struct Series {
    std::string name{};
    std::string color{};  // "#rrggbb"
    std::vector<double> x{}, y{};
    bool points = false, dashed = false;
};

struct LinePlot {
    std::string x_label = "step", y_label{};
    std::vector<Series> series{};
};

// Rows over steps, coloured by value.
struct HeatPlot {
    std::vector<std::string> rows{};            // from top to bottom
    std::vector<double> x{};                    // of the columns
    std::vector<std::vector<double>> values{};  // [rows][columns]
    std::string legend{};
    double low = 0, middle = 1, high = 2;  // colours: blue, white, red
};

// SVG, or an empty string where gnuplot is missing or fails, or there is no folder for temporary files.
std::string draw(const LinePlot& plot);
std::string draw(const HeatPlot& plot);
bool has_gnuplot();

}  // namespace octet::train
