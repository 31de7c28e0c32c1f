"""Tests of search that compile many programs run by `make test-search`; some small ones with every test."""

import pytest

#: Modules that are quick throughout.
QUICK = (
    "test_pareto",
    "test_prove",
    "test_prove_cli",
    "test_prove_rules",
    "test_several",
    "test_space",
    "test_spec",
    "test_study",
)

#: Of the others, tests that run with every test: a method on the device from start to resumed end, a front, what is
#: told where nothing fits, bad input, and what needs no program.
SMALL = (
    "test_a_run_is_its_first_half_and_the_rest[one-evolution]",
    "test_an_interrupted_search_goes_on",
    "test_the_front_is_that_of_all_designs_when_all_are_evaluated",
    "test_where_nothing_is_feasible_the_nearest_miss_is_told",
    "test_a_method_of_a_missing_library_is_bad_input",
    "test_an_elasticity_where_no_such_chip_can_be_is_a_dash",
    "test_bad_",
    "test_every_method_says_what_it_is_and_has_the_options_of_specifications",
    "test_excess_of_comparisons",
    "test_slopes_along_axes_are_differences_of_the_model",
    "test_the_budget_is_the_bill_of_the_model",
    "test_soft_min_tends_to_the_minimum",
    "test_the_feasible_come_first",
    "test_the_space_is_the_sweep",
    "test_steps_and_samples_stay_in_the_space",
    "test_slopes_are_those_of_each_structure_alone",
    "test_unlike_work_is_remarked",
    "test_two_objectives_print_the_ends_of_their_front",
    "test_without_figures_there_are_none",
)


def pytest_collection_modifyitems(items):
    for item in items:
        name = item.module.__name__
        if name.startswith("tests.unit.optimizers.") and not (name.endswith(QUICK) or item.name.startswith(SMALL)):
            item.add_marker(pytest.mark.slow)
