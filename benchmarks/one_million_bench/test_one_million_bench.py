def test_task(grade):
    grade.check()
