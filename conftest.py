pytest_plugins = ["pytest_rubrics.plugin"]
