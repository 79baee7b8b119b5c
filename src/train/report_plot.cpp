#include "train/report_plot.hpp"

#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "train/report_text.hpp"

namespace octet::train {
namespace {

constexpr const char* font = "sans-serif,13";

// Runs a script and takes what it prints. The script goes through a file because gnuplot reads data and commands from
// one stream and its answer would have to be read at the same time.
std::string run_gnuplot(const std::string& script) {
    std::error_code error;
    std::string path = (std::filesystem::temp_directory_path(error) / "octet-plot-XXXXXX").string();
    const int descriptor = error ? -1 : mkstemp(path.data());
    if (descriptor < 0) return "";
    FILE* file = fdopen(descriptor, "w");
    std::fwrite(script.data(), 1, script.size(), file);
    std::fclose(file);
    std::string out;
    if (FILE* pipe = popen(("gnuplot '" + path + "' 2>/dev/null").c_str(), "r")) {
        char buffer[4096];
        for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.append(buffer, got);
        if (pclose(pipe) != 0) out.clear();
    }
    unlink(path.c_str());
    return out.find("</svg>") == std::string::npos ? "" : out;
}

std::string quoted(const std::string& text) {
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? "''" : std::string(1, c);
    return out + "'";
}

std::string number(double value) { return std::isfinite(value) ? formatted("%.8g", value) : "NaN"; }

std::string terminal(int width, int height) {
    return formatted("set terminal svg size %d,%d dynamic noenhanced font '%s' background '#ffffff'\n", width, height,
                     font);
}

}  // namespace

bool has_gnuplot() { return std::system("gnuplot --version >/dev/null 2>&1") == 0; }

std::string draw(const LinePlot& plot) {
    std::string script = terminal(900, 380);
    script += "set xlabel " + quoted(plot.x_label) + "\nset ylabel " + quoted(plot.y_label) + "\n";
    script += "set grid lc rgb '#dddddd' lt 1 lw 0.6\nset border 3 lc rgb '#666666'\nset tics nomirror\n";
    script += "set key outside right top vertical Left reverse width 1 samplen 2\n";
    std::string commands;
    for (std::size_t i = 0; i < plot.series.size(); ++i) {
        const Series& series = plot.series[i];
        script += formatted("$s%zu << E\n", i);
        for (std::size_t j = 0; j < series.x.size(); ++j)
            script += number(series.x[j]) + " " + number(series.y[j]) + "\n";
        script += "E\n";
        commands +=
            formatted("%s$s%zu using 1:2 with %s lc rgb '%s' lw %s dt %d %s title %s", i ? ", " : "plot ", i,
                      series.points ? "linespoints" : "lines", series.color.c_str(), series.dashed ? "1.2" : "1.8",
                      series.dashed ? 2 : 1, series.points ? "pt 7 ps 0.4" : "", quoted(series.name).c_str());
    }
    return plot.series.empty() ? "" : run_gnuplot(script + commands + "\n");
}

std::string draw(const HeatPlot& plot) {
    if (plot.rows.empty() || plot.x.empty()) return "";
    const int rows = static_cast<int>(plot.rows.size());
    const int row_height = rows <= 48 ? 14 : rows <= 128 ? 7 : 3;
    std::string script = terminal(900, 110 + rows * row_height);
    script += formatted("set palette defined (%s '#2b6cb0', %s '#ffffff', %s '#c53030')\nset cbrange [%s:%s]\n",
                        number(plot.low).c_str(), number(plot.middle).c_str(), number(plot.high).c_str(),
                        number(plot.low).c_str(), number(plot.high).c_str());
    script += "set cblabel " + quoted(plot.legend) + "\nset xlabel 'step'\nset border 3 lc rgb '#666666'\n";
    script += "set tics nomirror out\nset ytics font 'sans-serif,9'\nunset key\n";
    script += formatted("set yrange [%d.5:-0.5]\n", rows - 1);
    std::string tics;
    for (int r = 0; r < rows; ++r) {
        const std::string& name = plot.rows[static_cast<std::size_t>(r)];
        if (!name.empty()) tics += (tics.empty() ? "" : ", ") + quoted(name) + formatted(" %d", r);
    }
    script += "set ytics (" + tics + ")\n$m << E\n";
    for (std::size_t r = 0; r < plot.values.size(); ++r)
        for (std::size_t c = 0; c < plot.x.size(); ++c)
            script += number(plot.x[c]) + formatted(" %zu ", r) + number(plot.values[r][c]) + "\n";
    // A viewer may blur an embedded image; rectangles stay sharp, while there are not too many of them.
    const bool few = plot.rows.size() * plot.x.size() <= 20000;
    script += formatted("E\nset autoscale xfix\nplot $m using 1:2:3 with image%s\n", few ? " pixels" : "");
    return run_gnuplot(script);
}

}  // namespace octet::train
