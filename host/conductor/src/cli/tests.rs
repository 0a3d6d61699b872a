//! Tests of the definitions of the command line.

use operator_tools::args::OUTCOMES;

use super::*;

#[track_caller]
fn parse(args: &[&str]) -> Cli {
    Cli::try_parse_from(std::iter::once(&"conductor").chain(args)).unwrap()
}

#[test]
fn no_arguments_mean_no_command_and_nothing_to_serve() {
    let cli = parse(&[]);
    assert!(cli.command.is_none() && cli.serve.is_empty());
}

#[test]
fn serve_may_be_left_out() {
    assert_eq!(parse(&["--config", "a.toml"]).serve.config, Some("a.toml".into()));
    let Some(Command::Serve(args)) = parse(&["serve", "--config", "a.toml"]).command else {
        panic!()
    };
    assert_eq!(args.config, Some("a.toml".into()));
}

#[test]
fn usage_lines_of_commands_with_logs_have_an_order_that_is_accepted() {
    let policy = ["conductor", "policy", "replay", "ttft-queue", "--log", "a", "b"];
    for (args, usage) in [
        (
            &policy[..],
            "conductor policy replay <FILE|BUILTIN> --log <FILE>...",
        ),
        (
            &["conductor", "simulate", "ttft-queue", "--log", "a", "b"][..],
            "conductor simulate [POLICY]... [OPTIONS]",
        ),
    ] {
        assert!(Cli::try_parse_from(args).is_ok(), "{args:?}");
        let refused = Cli::try_parse_from(args.iter().chain(&["--none"])).unwrap_err();
        assert!(refused.to_string().contains(usage), "{refused}");
    }
}

#[test]
fn a_time_scale_that_is_no_factor_is_refused() {
    for scale in ["0", "0.05", "-1", "nan", "inf", "x"] {
        assert!(time_scale(scale).is_err(), "{scale}");
    }
}

#[test]
fn a_file_and_fleet_flags_exclude_each_other() {
    assert!(Cli::try_parse_from(["conductor", "--config", "a", "--worker", "http://b"]).is_err());
    assert!(Cli::try_parse_from(["conductor", "--config", "a", "--port", "1"]).is_err());
    assert!(Cli::try_parse_from(["conductor", "--policy", "round-robin"]).is_err());
    assert!(Cli::try_parse_from(["conductor", "--port", "1"]).is_err());
}

#[test]
fn print_config_without_flags_is_refused_with_those_that_it_needs() {
    for args in [
        &["-c", "a.toml", "--print-config"][..],
        &["--print-config"],
        &["serve", "-c", "a.toml", "--print-config"],
    ] {
        let refused = parse(args).check().unwrap_err().to_string();
        assert!(
            refused.contains("--worker") && !refused.contains("cannot be used"),
            "{refused}"
        );
    }
    assert!(parse(&["--print-config", "--worker", "http://b"]).check().is_ok());
}

#[test]
fn the_outcomes_of_the_command_line_are_those_of_the_router() {
    let (open, ended) = OUTCOMES.split_last().unwrap();
    assert_eq!((*open, ended), ("open", &proxy::outcome_labels()[..]));
    let refused = Cli::try_parse_from(["conductor", "requests", "--outcome", "unreachabel"]).unwrap_err();
    let says = refused.to_string();
    assert!(
        says.contains("'unreachable'") && says.contains("queue-full"),
        "{says}"
    );
}

#[test]
fn an_explanation_needs_a_request_or_the_last_one_and_says_so() {
    let refused = Cli::try_parse_from(["conductor", "explain"])
        .unwrap_err()
        .to_string();
    assert!(refused.contains("REQUEST-ID|--last"), "{refused}");
    assert!(Cli::try_parse_from(["conductor", "explain", "--last"]).is_ok());
    assert!(Cli::try_parse_from(["conductor", "explain", "r1", "--last"]).is_err());
}

#[test]
fn a_log_level_is_taken_with_or_without_a_command_and_a_bad_one_is_a_mistake_of_the_command_line() {
    let cli = parse(&["--log-level", "warn,proxy=debug"]);
    assert_eq!(cli.serve.log_level.as_deref(), Some("warn,proxy=debug"));
    assert!(cli.serve.is_empty(), "it names nothing to serve");
    let Some(Command::Demo(demo)) = parse(&["demo", "--log-level", "debug"]).command else {
        panic!()
    };
    assert_eq!(demo.log_level.as_deref(), Some("debug"));
    for args in [&["--log-level", "inof"][..], &["demo", "--log-level", "inof"]] {
        let refused = Cli::try_parse_from(std::iter::once(&"conductor").chain(args)).unwrap_err();
        let message = refused.to_string();
        assert!(
            message.contains("--log-level") && message.contains("did you mean `info`?"),
            "{message}"
        );
        assert_eq!(refused.exit_code(), 2);
    }
}

#[test]
fn a_check_takes_a_file_or_flags() {
    let Some(Command::Check(check)) = parse(&["check", "a.toml", "--live", "--output", "json"]).command
    else {
        panic!()
    };
    assert_eq!(check.file, Some("a.toml".into()));
    assert!(check.live && check.format == CheckFormat::Json);
    assert!(matches!(
        parse(&["check", "--worker", "http://b:1"]).command,
        Some(Command::Check(_))
    ));
    assert!(Cli::try_parse_from(["conductor", "check", "a", "--worker", "http://b:1"]).is_err());
}

#[test]
fn the_command_that_compiles_is_called_as_the_runtime_calls_it() {
    let Some(Command::CompilePolicy(args)) =
        parse(&[policy_runtime::child::COMMAND, "1024", "512", "3"]).command
    else {
        panic!()
    };
    assert_eq!((args.memory, args.data, args.cpu), (1024, 512, 3));
}

#[test]
fn the_definitions_are_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}
