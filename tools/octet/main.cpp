// octet: the program. See commands.hpp; each subcommand is a file of its name.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <new>

#include "checks.hpp"
#include "commands.hpp"
#include "octet/error.hpp"
#include "octet_build_info.hpp"

namespace {

// Ctrl-C in a command that writes its files at its end. The trainer has its own way, which writes a checkpoint.
void stop_at_once(int) {
    constexpr char sentence[] = "\noctet: interrupted, no file was written\n";
    [[maybe_unused]] const auto ignored = write(STDERR_FILENO, sentence, sizeof sentence - 1);
    _exit(130);
}

}  // namespace

int main(int argc, char** argv) {
    using namespace octet::tool;
    std::signal(SIGINT, stop_at_once);
    std::signal(SIGXFSZ, SIG_IGN);  // a file that grows past a limit is an error with a sentence, not the end
    CLI::App program{"Octet: Mixture-of-Experts training in 8 bits"};
    program.set_version_flag("--version", octet::build_info::version);
    program.require_subcommand(1);

    Chosen chosen;
    for (int i = 0; i < argc; ++i) chosen.command_line += (i ? " " : "") + std::string(i ? argv[i] : "octet");
    add_info(program, chosen);
    add_verify(program, chosen);
    add_bench(program, chosen);
    add_tune(program, chosen);
    add_train(program, chosen);
    add_sample(program, chosen);
    program.footer(  // after the commands, which would inherit it
        "Start with:\n"
        "  octet info              what this build and this machine have\n"
        "  octet verify            every operation against the scalar oracle\n"
        "  octet bench kernels     how fast, as a share of this machine's memory bandwidth\n"
        "  octet train             a small language model learns in 8 bits; --compare shows it beside its bf16 twin\n"
        "  octet sample            what it has learnt to write\n"
        "Each command explains itself with --help.");
    check_values(program);
    try {
        program.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        const auto named = [&](CLI::App* command) { return command->check_name(argv[1]); };
        if (argc > 1 && argv[1][0] != '-' && program.get_subcommands(named).empty()) {
            std::fprintf(stderr, "octet: there is no command '%s'; octet --help lists those there are\n", argv[1]);
            return 2;
        }
        return program.exit(error) == 0 ? 0 : 2;  // 0: help or the version was asked for
    }
    try {
        const int code = chosen.run();
        if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
        std::fprintf(stderr, "octet: what was printed could not all be written; is the disk full?\n");
        return code != 0 ? code : 2;
    } catch (const std::bad_alloc&) {
        std::fprintf(stderr, "octet: out of memory; fewer tokens, a smaller model or a smaller shape needs less\n");
    } catch (const octet::Error& error) {
        std::fprintf(stderr, "octet: %s: %s\n", octet::name(error.status()), error.what());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "octet: %s\n", error.what());
    }
    return 2;
}
