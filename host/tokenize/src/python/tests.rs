//! Tests of Python's methods and Jinja2's filters. The expected texts are those of Jinja2 3.1.

use minijinja::{Environment, Error};

fn render(source: &str) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_formatter(crate::template::print);
    crate::costs::set_limit(&mut environment, usize::MAX);
    super::register(&mut environment);
    let context = crate::value::parse(
        r#"{"s":"Hello wOrld-foo","d":{"b":1,"a":[1,null]},"l":[3,1,2],"n":null,"w":"\t x \u001f","t":"a\r\n\u001cb\n"}"#,
    );
    environment.render_str(source, context.unwrap())
}

#[track_caller]
fn check(source: &str, expected: &str) {
    assert_eq!(render(source).unwrap(), expected, "{source}");
}

#[test]
fn white_space_is_that_of_python() {
    check(
        "[{{ w|trim }}][{{ w.strip() }}][{{ w.rstrip() }}]",
        "[x][x][\t x]",
    );
    check("[{{ w.lstrip()|length }}][{{ w.isspace() }}]", "[3][False]");
    check(
        "{{ 'xyax'.strip('xy') }}{{ 'xxaxx'|trim('x') }}{{ 'xyax'.rstrip('xy') }}",
        "aaxya",
    );
    check(
        "{{ w.split() }}{{ ' a  b c '.split(none, 1) }}{{ 'a,b'.split(',') }}",
        "['x']['a', 'b c ']['a', 'b']",
    );
    check(
        "{{ t.splitlines() }}{{ t.splitlines(true)|length }}",
        "['a', '', 'b']3",
    );
    check("[{{ none|trim }}]", "[None]");
}

#[test]
fn texts_have_the_methods_of_python() {
    check(
        "{{ s.rsplit('o', 1) }}{{ 'a.b'.rsplit('.') }}",
        "['Hello wOrld-fo', '']['a', 'b']",
    );
    check(
        "{{ s.partition('o') }}{{ s.rpartition('q') }}",
        "('Hell', 'o', ' wOrld-foo')('', '', 'Hello wOrld-foo')",
    );
    check(
        "{{ s.index('o') }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}",
        "4bcab",
    );
    check(
        "{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '-') }}|{{ '-7'.zfill(4) }}",
        "a  |--a|-007",
    );
    check("{{ s.swapcase() }}{{ \"it's\".title() }}", "hELLO WoRLD-FOOIt'S");
    check(
        "{{ '12'.isdigit() }}{{ '1.5'.isdecimal() }}{{ ''.isnumeric() }}",
        "TrueFalseFalse",
    );
    for refused in [
        "{{ '½'.isdigit() }}",
        "{{ 'a'.index('b') }}",
        "{{ 'a'.split('')|list if false else 'a'.rsplit('') }}",
    ] {
        assert!(render(refused).is_err(), "{refused}");
    }
}

#[test]
fn lists_and_dictionaries_have_the_methods_of_python() {
    check(
        "{{ l.index(2) }}{{ l.copy() }}{{ d.copy() }}",
        "2[3, 1, 2]{'b': 1, 'a': [1, None]}",
    );
}

#[test]
fn filters_are_those_of_jinja() {
    check("{{ undefined|length }}{{ l|count }}", "03");
    assert!(render("{{ n|length }}").is_err());
    check(
        "{{ s|replace('o','0',1) }}{{ 77|replace('7','8') }}",
        "Hell0 wOrld-foo88",
    );
    check(
        "{{ 'x'|int }} {{ 'x'|int(5) }} {{ ' 12 '|int }} {{ '1.7'|int }} {{ '0x1f'|int(0, 16) }} {{ n|int }}",
        "0 5 12 1 31 0",
    );
    check(
        "{{ 'x'|float }} {{ '1e3'|float }} {{ 'x'|float(1.5) }}",
        "0.0 1000.0 1.5",
    );
    for refused in ["{{ '1_0'|int }}", "{{ 'inf'|float }}", "{{ '１'|int }}"] {
        assert!(render(refused).is_err(), "{refused}");
    }
    check(
        "{{ n is iterable }}{{ u is iterable }}{{ 1 is iterable }}{{ s is iterable }}{{ d is iterable }}",
        "FalseTrueFalseTrueTrue",
    );
}

#[test]
fn arguments_of_tojson_are_in_the_order_of_transformers() {
    check(
        "{{ l|tojson(2) }}{{ ['é']|tojson(true) }}",
        "[3, 1, 2][\"\\u00e9\"]",
    );
    check("{{ [1]|tojson(false, 2) }}", "[\n  1\n]");
    check(
        "{{ d|tojson(none, none, (',', ':'), sort_keys=true) }}",
        r#"{"a":[1,null],"b":1}"#,
    );
}

#[test]
fn values_are_printed_as_in_python() {
    check(
        "{{ d|items|list }}{{ d.items()|list }}",
        "[('b', 1), ('a', [1, None])][('b', 1), ('a', [1, None])]",
    );
    check(
        "{{ (1, 2) }}{{ (1,) }}{{ () }}{{ [u] }}{{ u }}",
        "(1, 2)(1,)()[Undefined]",
    );
    assert!(render("{{ d.items() }}").is_err());
}
